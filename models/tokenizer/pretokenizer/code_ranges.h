#pragma once
// Sets of code points that some rules list one by one. For the files of this folder.

#include <algorithm>
#include <cstdint>
#include <span>

namespace hearth::models::stages {

struct CodeRange {
  uint32_t first;
  uint32_t last;  // inclusive
};

/// `ranges` ascend and do not touch.
inline bool contains(std::span<const CodeRange> ranges, uint32_t code) {
  const auto at = std::partition_point(
      ranges.begin(), ranges.end(), [code](const CodeRange& range) { return range.last < code; });
  return at != ranges.end() && at->first <= code;
}

}  // namespace hearth::models::stages
