#include "engine/speculation/lookup_index.h"

#include <algorithm>
#include <bit>

#include "kernels/base/check.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {

LookupIndex::LookupIndex(int32_t max_tokens)
    : capacity_(std::bit_ceil(static_cast<uint32_t>(std::clamp(max_tokens, 16, kMaxCapacity)))),
      head_(capacity_, -1),
      prev_(capacity_, -1) {}

uint32_t LookupIndex::bucket(int32_t a, int32_t b) const {
  const uint64_t pair = uint64_t{static_cast<uint32_t>(a)} << 32 | static_cast<uint32_t>(b);
  // Fibonacci hashing: the high bits of the product are the good ones.
  const uint64_t hash = (pair ^ (pair >> 29)) * 0x9e3779b97f4a7c15u;
  return static_cast<uint32_t>(hash >> 40) & (capacity_ - 1);
}

void LookupIndex::insert(std::span<const int32_t> text, int32_t position) {
  const size_t at = position;
  int32_t& head = head_[bucket(text[at - 1], text[at])];
  prev_[at & (capacity_ - 1)] = head;
  head = position;
}

LookupIndex::Match LookupIndex::find(std::span<const int32_t> text) {
  const auto size = size32(text);
  HEARTH_CHECK(size >= indexed_, "the text has {} tokens, it had {}", size, indexed_);
  // The last pair is not indexed until another follows it.
  indexed_ = std::max(indexed_, size - 1 - capacity_);
  for (; indexed_ < size - 1; ++indexed_) insert(text, indexed_);
  Match best;
  if (size < kMinMatch + 1) return best;
  const auto at = [&](int32_t position) { return text[position]; };
  int32_t end = head_[bucket(at(size - 2), at(size - 1))];
  // Entries older than the capacity have been overwritten.
  const int32_t oldest = std::max(1, indexed_ - capacity_);
  for (int32_t seen = 0; end >= oldest && seen < kMaxCandidates; ++seen) {
    const int32_t longest = std::min(kMaxMatch, end + 1);
    int32_t length = 0;
    while (length < longest && at(end - length) == at(size - 1 - length)) ++length;
    if (length >= kMinMatch && length > best.length) best = {end + 1, length};
    if (best.length == kMaxMatch) break;
    end = prev_[end & (capacity_ - 1)];
  }
  return best;
}

void LookupIndex::draft(std::span<const int32_t> text, const Match& match, int32_t count,
                        std::vector<int32_t>& out) {
  out.clear();
  if (match.length == 0) return;
  for (int32_t i = 0; i < count; ++i) {
    const size_t from = match.next + i;
    out.push_back(from < text.size() ? text[from] : out[from - text.size()]);
  }
}

}  // namespace hearth::engine
