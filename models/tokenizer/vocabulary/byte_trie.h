#pragma once
// A set of byte strings, each with a number. Finds all of them that begin at a given place in a
// text.

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/chars.h"

namespace hearth::models {

/// Immutable once built.
class ByteTrie {
 public:
  /// Non-empty texts and their numbers (not negative). Of two equal texts the later counts.
  explicit ByteTrie(std::vector<std::pair<std::string_view, int32_t>> texts = {});

  /// Calls `found(number, bytes)` for each text that `text` begins with, the shortest first.
  template <typename Found>
  void match_front(std::string_view text, const Found& found) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = child(node, byte_of(text[i]));
      if (node == 0) return;
      if (nodes_[node].number >= 0) found(nodes_[node].number, i + 1);
    }
  }

 private:
  struct Node {
    uint32_t first_child = 0;  // children are adjacent, sorted by byte
    uint16_t num_children = 0;
    uint8_t byte = 0;
    int32_t number = -1;  // -1: no text ends here
  };
  /// 0, the root, if the node has no such child.
  uint32_t child(uint32_t node, uint8_t byte) const;

  std::vector<Node> nodes_ = {{}};
  std::array<uint32_t, 256> first_ = {};  // children of the root, which are looked up most
};

}  // namespace hearth::models
