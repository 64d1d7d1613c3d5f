#pragma once
// Sets of code points that some rules enumerate. For use in this folder.

#include <algorithm>
#include <cstdint>
#include <span>

namespace hearth::models::stages {

struct CodeRange {
  uint32_t first;
  uint32_t last;  // inclusive
};

/// `ranges` are ascending and do not overlap.
inline bool contains(std::span<const CodeRange> ranges, uint32_t code) {
  const auto at = std::partition_point(
      ranges.begin(), ranges.end(), [code](const CodeRange& range) { return range.last < code; });
  return at != ranges.end() && at->first <= code;
}

}  // namespace hearth::models::stages
