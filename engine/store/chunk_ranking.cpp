#include "engine/store/chunk_ranking.h"

#include <algorithm>
#include <cmath>

#include "engine/kv/prefix_value.h"
#include "kernels/base/numbers.h"

namespace hearth::engine {

void ChunkRanking::clear() { *this = ChunkRanking(); }

bool ChunkRanking::may_go(const RankedChunk& chunk) const {
  return chunk.pinned_until_s == 0 && !children_.contains(chunk.last);
}

void ChunkRanking::offer(const RankedChunk& chunk) {
  if (may_go(chunk)) owners_[chunk.owner].may_go.insert(key_of(chunk));
}

template <typename Fn>
void ChunkRanking::for_each_named(const Hash128& last, const Fn& fn) {
  const auto [begin, end] = by_last_.equal_range(last);
  for (auto at = begin; at != end; ++at) fn(chunks_.at(at->second));
}

void ChunkRanking::add(RankedChunk chunk) {
  remove(chunk.row);
  // The numbers of a row are untrusted.
  const auto number = [](double value) { return std::isfinite(value) && value > 0 ? value : 0; };
  chunk.value = number(chunk.value);
  chunk.recompute_us = number(chunk.recompute_us);
  chunk.pinned_until_s = std::max<int64_t>(chunk.pinned_until_s, 0);
  const RankedChunk& added = chunks_.emplace(chunk.row, std::move(chunk)).first->second;
  by_last_.emplace(added.last, added.row);
  if (added.pinned_until_s > 0) pinned_.emplace(added.pinned_until_s, added.row);
  if (added.parent != added.last && ++children_[added.parent] == 1) {
    for_each_named(added.parent, [this](const RankedChunk& parent) { withdraw(parent); });
  }
  offer(added);
}

void ChunkRanking::resume() {
  for (auto& [name, owner] : owners_) owner.age = 0;
  for (const auto& [row, chunk] : chunks_) {
    double& age = owners_[chunk.owner].age;
    age = age == 0 ? chunk.value : std::min(age, chunk.value);
  }
}

void ChunkRanking::remove(int64_t row) {
  const auto at = chunks_.find(row);
  if (at == chunks_.end()) return;
  const RankedChunk chunk = std::move(at->second);
  owners_[chunk.owner].may_go.erase(key_of(chunk));
  pinned_.erase({chunk.pinned_until_s, row});
  const auto [begin, end] = by_last_.equal_range(chunk.last);
  by_last_.erase(
      std::find_if(begin, end, [row](const auto& entry) { return entry.second == row; }));
  chunks_.erase(at);
  if (chunk.parent == chunk.last) return;
  const auto children = children_.find(chunk.parent);
  if (--children->second > 0) return;
  children_.erase(children);
  for_each_named(chunk.parent, [this](const RankedChunk& parent) { offer(parent); });
}

void ChunkRanking::evict(int64_t row) {
  const auto at = chunks_.find(row);
  if (at == chunks_.end()) return;
  double& age = owners_[at->second.owner].age;
  age = std::max(age, at->second.value);
  remove(row);
}

double ChunkRanking::value_now(const std::string& owner, int64_t hits, double recompute_us,
                               uint64_t bytes) const {
  const auto at = owners_.find(owner);
  return prefix_value(at == owners_.end() ? 0 : at->second.age, hits + 1, recompute_us,
                      as_double(bytes));
}

double ChunkRanking::use(int64_t row, int64_t now_s) {
  const auto at = chunks_.find(row);
  if (at == chunks_.end()) return 0;
  RankedChunk& chunk = at->second;
  withdraw(chunk);
  chunk.hits = std::clamp<int64_t>(chunk.hits, 0, kMaxUsesCounted) + 1;
  chunk.used_s = std::max(chunk.used_s, now_s);
  chunk.value =
      std::max(chunk.value, value_now(chunk.owner, chunk.hits, chunk.recompute_us, chunk.bytes));
  offer(chunk);
  return chunk.value;
}

void ChunkRanking::pin(int64_t row, int64_t until_s) {
  const auto at = chunks_.find(row);
  if (at != chunks_.end() && until_s > at->second.pinned_until_s) set_pinned(row, until_s);
}

void ChunkRanking::set_pinned(int64_t row, int64_t until_s) {
  const auto at = chunks_.find(row);
  if (at == chunks_.end()) return;
  RankedChunk& chunk = at->second;
  withdraw(chunk);
  pinned_.erase({chunk.pinned_until_s, row});
  chunk.pinned_until_s = until_s;
  if (until_s > 0) pinned_.emplace(until_s, row);
  offer(chunk);
}

const RankedChunk* ChunkRanking::next(const std::string& owner, int64_t now_s) {
  while (!pinned_.empty() && pinned_.begin()->first <= now_s) {
    set_pinned(pinned_.begin()->second, 0);
  }
  const auto at = owners_.find(owner);
  if (at == owners_.end() || at->second.may_go.empty()) return nullptr;
  return &chunks_.at(std::get<3>(*at->second.may_go.begin()));
}

}  // namespace hearth::engine
