#pragma once
// The logprobs frame of a delta, read without a value being made of it: a number or a string that
// goes on into other JSON is taken over as it stands.

#include <cstddef>
#include <string_view>
#include <vector>

namespace hearth::ipc {

/// Both as JSON, views into the frame: a number or null, and a string with its quotes.
struct LogprobText {
  std::string_view logprob;
  std::string_view text;
};

struct LogprobTexts {
  struct Token {
    LogprobText own;
    size_t top_begin = 0;  ///< its share of `top`
    size_t top_end = 0;
  };
  std::vector<Token> tokens;
  std::vector<LogprobText> top;
};

/// Reads what encode_logprobs() writes, and that alone: members in its order and no blanks. False:
/// it is something else, or not UTF-8; `out` is then of no use.
bool read_logprobs(std::string_view frame, LogprobTexts* out);

}  // namespace hearth::ipc
