#include "models/tokenizer/token_index.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>

#include "kernels/base/check.h"

namespace hearth::models {
namespace {

uint64_t hash_of(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }
uint32_t tag_of(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }

}  // namespace

void TokenIndex::reserve(size_t count) {
  HEARTH_CHECK(slots_.empty(), "{} slots", slots_.size());
  slots_.resize(std::bit_ceil(2 * std::max<size_t>(count, 1)));
}

void TokenIndex::insert(std::string_view text, int32_t id) {
  const uint64_t hash = hash_of(text);
  const uint32_t tag = tag_of(hash);
  size_t at = hash & (slots_.size() - 1);
  while (slots_[at].id >= 0 && (slots_[at].tag != tag || slots_[at].text != text)) {
    at = (at + 1) & (slots_.size() - 1);
  }
  slots_[at] = {tag, id, text};
  max_bytes_ = std::max(max_bytes_, text.size());
}

int32_t TokenIndex::find(std::string_view text) const {
  if (text.size() > max_bytes_) return -1;
  const uint64_t hash = hash_of(text);
  const uint32_t tag = tag_of(hash);
  for (size_t at = hash & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
    const Slot& slot = slots_[at];
    if (slot.id < 0 || (slot.tag == tag && slot.text == text)) return slot.id;
  }
}

}  // namespace hearth::models
