#pragma once
// Finds tokens that appear literally in text: user-defined tokens always, control tokens only where
// the caller allows them.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "models/tokenizer/vocabulary/byte_span.h"

namespace hearth::models {

/// A trie over the texts of special tokens. Immutable once filled.
class SpecialTokens {
 public:
  struct Match {
    int32_t id = 0;
    size_t bytes = 0;
  };

  /// An empty text never matches; of two equal texts the later counts.
  void add(std::string_view text, int32_t id, bool is_control);
  /// The longest token at the front of `text`, where a control token has at most `control_bytes`
  /// bytes. Takes time proportional to the longest special token at most.
  std::optional<Match> match_front(std::string_view text, size_t control_bytes) const;

  /// Calls `plain(text)` for each run of plain text, never empty, and `token(id)` for each special
  /// token between the runs, in order. `with_control`, `data`: see EncodeOptions.
  template <typename Plain, typename Token>
  void partition(std::string_view text, bool with_control, std::span<const ByteSpan> data,
                 const Plain& plain, const Token& token) const {
    size_t plain_begin = 0;
    for (size_t i = 0; i < text.size();) {
      while (!data.empty() && data.front().end <= i) data = data.subspan(1);
      const size_t free_end = !with_control ? i : data.empty() ? text.size() : data.front().begin;
      const auto match = match_front(text.substr(i), free_end > i ? free_end - i : 0);
      if (!match) {
        ++i;
        continue;
      }
      if (i > plain_begin) plain(text.substr(plain_begin, i - plain_begin));
      token(match->id);
      i += match->bytes;
      plain_begin = i;
    }
    if (plain_begin < text.size()) plain(text.substr(plain_begin));
  }

 private:
  struct Node {
    int32_t id = -1;
    bool is_control = false;
  };
  std::vector<Node> nodes_ = {{}};
  std::unordered_map<uint64_t, uint32_t> edges_;  // node * 256 + byte -> node
  std::array<bool, 256> begins_ = {};  // bytes that begin any token; rules out most text quickly
};

}  // namespace hearth::models
