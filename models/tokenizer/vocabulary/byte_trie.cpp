#include "models/tokenizer/vocabulary/byte_trie.h"

#include <algorithm>
#include <cstddef>

#include "kernels/base/chars.h"
#include "kernels/base/numbers.h"

namespace hearth::models {

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, int32_t>> texts) {
  std::stable_sort(texts.begin(), texts.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  // Builds level by level. A node represents the texts [begin, end), which share their first
  // `depth` bytes.
  struct Range {
    uint32_t node;
    size_t begin, end;
  };
  std::vector<Range> level = {{0, 0, texts.size()}};
  for (size_t depth = 0; !level.empty(); ++depth) {
    std::vector<Range> next;
    for (const auto& [node, range_begin, end] : level) {
      size_t begin = range_begin;
      while (begin < end && texts[begin].first.size() == depth)
        nodes_[node].number = texts[begin++].second;
      nodes_[node].first_child = narrow<uint32_t>(nodes_.size());
      while (begin < end) {
        const char byte = texts[begin].first[depth];
        const auto is_same = [&](const auto& entry) { return entry.first[depth] == byte; };
        const auto same_end =
            std::partition_point(texts.begin() + begin, texts.begin() + end, is_same);
        const size_t child_end = same_end - texts.begin();
        next.push_back({narrow<uint32_t>(nodes_.size()), begin, child_end});
        nodes_.push_back({.byte = byte_of(byte)});
        ++nodes_[node].num_children;
        begin = child_end;
      }
    }
    level = std::move(next);
  }
  for (uint32_t i = 0; i < nodes_[0].num_children; ++i)
    first_[nodes_[nodes_[0].first_child + i].byte] = nodes_[0].first_child + i;
}

uint32_t ByteTrie::child(uint32_t node, uint8_t byte) const {
  if (node == 0) return first_[byte];
  const auto begin = nodes_.begin() + nodes_[node].first_child;
  const auto end = begin + nodes_[node].num_children;
  const auto at = std::lower_bound(begin, end, byte,
                                   [](const Node& n, uint8_t wanted) { return n.byte < wanted; });
  return at == end || at->byte != byte ? 0 : narrow<uint32_t>(at - nodes_.begin());
}

}  // namespace hearth::models
