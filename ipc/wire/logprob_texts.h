#pragma once
// The logprobs frame of a delta as views: numbers and strings are copied into other JSON without
// being parsed.

#include <cstddef>
#include <string_view>
#include <vector>

namespace hearth::ipc {

/// JSON, views into the frame: a number or null, and a string with its quotes.
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

/// Reads exactly what encode_logprobs() writes: members in that order and no blanks. False: it is
/// something else, or not UTF-8; `out` is then unspecified.
bool read_logprobs(std::string_view frame, LogprobTexts* out);

}  // namespace hearth::ipc
