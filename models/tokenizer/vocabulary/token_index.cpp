#include "models/tokenizer/vocabulary/token_index.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "kernels/base/check.h"

namespace hearth::models {
namespace {

uint64_t hash_of(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }
uint32_t tag_of(uint64_t hash) { return static_cast<uint32_t>(hash); }
size_t place_of(uint64_t hash, size_t slots) { return (hash >> 32) * slots >> 32; }

}  // namespace

void TokenIndex::reserve(size_t count) {
  HEARTH_CHECK(slots_.empty(), "{} slots", slots_.size());
  slots_.resize(count + count * 2 / 3 + 1);
}

void TokenIndex::insert(std::string_view text, int32_t id) {
  const uint64_t hash = hash_of(text);
  const uint32_t tag = tag_of(hash);
  size_t at = place_of(hash, slots_.size());
  while (slots_[at].id >= 0 && (slots_[at].tag != tag || slots_[at].text != text)) {
    if (++at == slots_.size()) at = 0;
  }
  slots_[at] = {tag, id, text};
  max_bytes_ = std::max(max_bytes_, text.size());
}

int32_t TokenIndex::find(std::string_view text) const {
  if (text.size() > max_bytes_) return -1;
  const uint64_t hash = hash_of(text);
  const uint32_t tag = tag_of(hash);
  for (size_t at = place_of(hash, slots_.size());;) {
    const Slot& slot = slots_[at];
    if (slot.id < 0 || (slot.tag == tag && slot.text == text)) return slot.id;
    if (++at == slots_.size()) at = 0;
  }
}

}  // namespace hearth::models
