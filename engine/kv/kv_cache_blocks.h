#pragma once
// What the files of KvCache share.

#include "engine/kv/kv_cache.h"

namespace hearth::engine {

template <typename Fn>
void KvCache::for_each_block(const SequenceBlocks& seq, int32_t group, const Fn& fn) const {
  if (seq.tables.empty()) return;
  for (const int32_t block : seq.tables[group]) {
    if (block != kNoBlock) fn(block);
  }
  if (group != recurrent_) return;
  const StateBlocks& state = seq.state;
  for (const int32_t block : {state.current, state.border, state.saved}) {
    if (block != kNoBlock) fn(block);
  }
  if (state.next != kNoBlock && state.next != state.current) fn(state.next);
}

}  // namespace hearth::engine
