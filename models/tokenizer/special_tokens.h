#pragma once
// Finds the tokens that text names outright: user-defined tokens always, control tokens where the
// caller may speak them.

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace hearth::models {

/// A trie over the texts of special tokens. Immutable once filled.
class SpecialTokens {
 public:
  struct Match {
    int32_t id = 0;
    size_t bytes = 0;
  };

  /// An empty text is never found; of two equal texts the later counts.
  void add(std::string_view text, int32_t id, bool is_control);
  /// The longest token at the front of `text`. Takes time up to the longest special token.
  std::optional<Match> match_front(std::string_view text, bool with_control) const;

 private:
  struct Node {
    int32_t id = -1;
    bool is_control = false;
  };
  std::vector<Node> nodes_ = {{}};
  std::unordered_map<uint64_t, uint32_t> edges_;  // node * 256 + byte -> node
  std::array<bool, 256> begins_ = {};             // first bytes of any token: most text stops here
};

}  // namespace hearth::models
