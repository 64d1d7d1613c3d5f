#pragma once
// The vocabulary as a trie over the bytes of its tokens, in pre-order: a node, then all nodes below
// it.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace hearth::engine {

/// Immutable, so all constraints of a model share one.
class TokenTrie {
 public:
  struct Node {
    uint8_t byte = 0;
    uint16_t depth = 0;        ///< bytes before it
    int32_t after = 0;         ///< first node after those below it
    int32_t tokens_begin = 0;  ///< of tokens(): those that end here
    int32_t tokens_end = 0;
  };

  /// `pieces[id]`: the bytes that a token stands for; empty: never drawn under a constraint.
  explicit TokenTrie(std::span<const std::string_view> pieces);

  int32_t vocab_size() const { return vocab_size_; }
  size_t max_bytes() const { return max_bytes_; }
  std::span<const Node> nodes() const { return nodes_; }
  std::span<const int32_t> tokens() const { return tokens_; }
  std::string_view piece(int32_t token) const {
    const size_t at = token;
    return {text_.data() + begins_[at], begins_[at + 1] - begins_[at]};
  }

 private:
  int32_t vocab_size_ = 0;
  size_t max_bytes_ = 0;
  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;
  std::vector<char> text_;
  std::vector<size_t> begins_;
};

}  // namespace hearth::engine
