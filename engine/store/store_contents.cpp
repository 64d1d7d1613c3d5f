#include "engine/store/store_contents.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "engine/store/stored_row.h"
#include "kernels/base/numbers.h"

namespace hearth::engine {
namespace {

/// Eviction makes room in bulk: this share of the budget at once.
constexpr uint64_t kEvictShare = 32;

}  // namespace

Result<void> StoreContents::open(Database& database) {
  database_ = &database;
  HEARTH_ASSIGN_OR_RETURN(
      erase_, database.prepare("DELETE FROM chunk WHERE id = ? RETURNING owner, bytes"));
  // Another process may have pinned it meanwhile.
  HEARTH_ASSIGN_OR_RETURN(evict_,
                          database.prepare("DELETE FROM chunk WHERE id = ? AND pinned_until <= ?"
                                           " RETURNING owner, bytes"));
  HEARTH_ASSIGN_OR_RETURN(pinned_until_,
                          database.prepare("SELECT pinned_until FROM chunk WHERE id = ?"));
  HEARTH_ASSIGN_OR_RETURN(
      pinned_bytes_,
      database.prepare("SELECT c.bytes, c.pinned_until > ?2, (SELECT sum(bytes) FROM chunk WHERE"
                       " owner = c.owner AND pinned_until > ?2) FROM chunk c WHERE c.id = ?1"));
  HEARTH_ASSIGN_OR_RETURN(
      pin_, database.prepare("UPDATE chunk SET pinned_until = max(pinned_until, ?) WHERE id = ?"));
  HEARTH_ASSIGN_OR_RETURN(touch_,
                          database.prepare("UPDATE chunk SET used = max(used, ?), hits = hits + 1,"
                                           " value = max(value, ?) WHERE id = ?"));
  return recount();
}

void StoreContents::close() {
  for (Statement* statement : {&erase_, &evict_, &pinned_until_, &pinned_bytes_, &pin_, &touch_}) {
    *statement = Statement();
  }
  ranking_.clear();
  ranked_ = false;
  database_ = nullptr;
}

Result<void> StoreContents::recount() {
  // This query uses only an index, because rows are large.
  HEARTH_ASSIGN_OR_RETURN(
      Statement rows,
      database_->prepare("SELECT id, owner, bytes, idx, used, hits, recompute_us, value,"
                         " pinned_until, parent, last FROM chunk"));
  counts_.entries = counts_.bytes = 0;
  counts_.bytes_of_owner.clear();
  ranking_.clear();
  while (true) {
    HEARTH_ASSIGN_OR_RETURN(const bool more, rows.step());
    if (!more) break;
    RankedChunk chunk;
    chunk.row = rows.integer(0);
    chunk.owner = rows.text(1);
    chunk.bytes = std::max<int64_t>(0, rows.integer(2));
    chunk.index = narrow<int32_t>(std::clamp<int64_t>(rows.integer(3), 0, 1 << 24));
    chunk.used_s = rows.integer(4);
    chunk.hits = rows.integer(5);
    chunk.recompute_us = rows.real(6);
    chunk.value = rows.real(7);
    chunk.pinned_until_s = rows.integer(8);
    chunk.parent = hash_from(rows.blob(9));
    chunk.last = hash_from(rows.blob(10));
    add(std::move(chunk));
  }
  ranking_.resume();
  ranked_ = true;
  // Another process may have removed rows.
  if (published_ != nullptr) {
    published_->keep_if(
        [this](int64_t row, const Hash128& last) { return ranking_.has(row, last); });
  }
  return {};
}

StoreCounts StoreContents::begin() {
  if (published_ != nullptr) published_->begin();
  return counts_;
}

void StoreContents::commit() {
  if (published_ != nullptr) published_->commit();
}

void StoreContents::roll_back(StoreCounts to) {
  if (published_ != nullptr) published_->roll_back();
  counts_ = std::move(to);
  ranked_ = false;
}

void StoreContents::lost() {
  if (published_ != nullptr) published_->clear();
  counts_ = {.entries = 0, .bytes = 0, .evicted = counts_.evicted, .bytes_of_owner = {}};
  ranked_ = false;
}

void StoreContents::added(RankedChunk chunk, const NamedChain& chain, const ChunkShape& shape) {
  if (published_ != nullptr) published_->added(chunk.row, chain, shape);
  add(std::move(chunk));
}

void StoreContents::add(RankedChunk chunk) {
  ++counts_.entries;
  counts_.bytes += chunk.bytes;
  counts_.bytes_of_owner[chunk.owner] += chunk.bytes;
  ranking_.add(std::move(chunk));
}

void StoreContents::note_removed(int64_t row) {
  if (published_ != nullptr) published_->removed(row);
}

void StoreContents::uncount(const std::string& owner, uint64_t bytes) {
  counts_.entries -= std::min<uint64_t>(counts_.entries, 1);
  counts_.bytes -= std::min(counts_.bytes, bytes);
  uint64_t& of_owner = counts_.bytes_of_owner[owner];
  of_owner -= std::min(of_owner, bytes);
}

Result<void> StoreContents::remove(int64_t row) {
  erase_.bind(0, row);
  HEARTH_ASSIGN_OR_RETURN(const bool was_there, erase_.step());
  ranking_.remove(row);
  note_removed(row);
  if (!was_there) return {};
  const std::string owner = erase_.text(0);
  const uint64_t bytes = std::max<int64_t>(0, erase_.integer(1));
  HEARTH_TRY(erase_.run());
  uncount(owner, bytes);
  return {};
}

Result<void> StoreContents::touch(int64_t row, int64_t now_s) {
  return touch_.bind(0, now_s).bind(1, ranking_.use(row, now_s)).bind(2, row).run();
}

Result<void> StoreContents::evict(int64_t now_s) {
  if (!ranked_) HEARTH_TRY(recount());
  const auto goal_of = [](uint64_t budget) { return budget - budget / kEvictShare; };
  if (bounds_.owner_budget_bytes > 0) {
    std::vector<std::string> over;
    for (const auto& [owner, bytes] : counts_.bytes_of_owner) {
      if (bytes > bounds_.owner_budget_bytes) over.push_back(owner);
    }
    for (const std::string& owner : over) {
      while (counts_.bytes_of_owner[owner] > goal_of(bounds_.owner_budget_bytes)) {
        HEARTH_ASSIGN_OR_RETURN(const bool any, evict_one(owner, now_s));
        if (!any) break;
      }
    }
  }
  if (counts_.bytes <= bounds_.budget_bytes) return {};
  while (counts_.bytes > goal_of(bounds_.budget_bytes)) {
    HEARTH_ASSIGN_OR_RETURN(const bool any, evict_of_fullest(now_s));
    if (!any) return {};  // all pinned
  }
  return {};
}

Result<bool> StoreContents::evict_of_fullest(int64_t now_s) {
  std::vector<std::pair<uint64_t, std::string>> owners;
  for (const auto& [owner, bytes] : counts_.bytes_of_owner) {
    if (bytes > 0) owners.emplace_back(bytes, owner);
  }
  std::ranges::sort(owners, std::greater{});
  for (const auto& [bytes, owner] : owners) {
    HEARTH_ASSIGN_OR_RETURN(const bool any, evict_one(owner, now_s));
    if (any) return true;
  }
  return false;
}

Result<bool> StoreContents::evict_one(const std::string& owner, int64_t now_s) {
  while (const RankedChunk* chunk = ranking_.next(owner, now_s)) {
    const int64_t row = chunk->row;
    HEARTH_ASSIGN_OR_RETURN(const bool gone, evict_.bind(0, row).bind(1, now_s).step());
    if (gone) {
      // The owner is read from the row, because the index may be damaged.
      const std::string whose = evict_.text(0);
      const uint64_t bytes = std::max<int64_t>(0, evict_.integer(1));
      HEARTH_TRY(evict_.run());
      uncount(whose, bytes);
      ranking_.evict(row);
      note_removed(row);
      ++counts_.evicted;
      return true;
    }
    HEARTH_ASSIGN_OR_RETURN(const bool there, pinned_until_.bind(0, row).step());
    const int64_t until_s = there ? pinned_until_.integer(0) : 0;
    pinned_until_.reset();
    if (until_s > now_s) {
      ranking_.pin(row, until_s);
    } else {
      ranking_.remove(row);
    }
  }
  return false;
}

Result<bool> StoreContents::pin(int64_t row, int64_t until_s, int64_t now_s) {
  HEARTH_ASSIGN_OR_RETURN(const bool there, pinned_bytes_.bind(0, row).bind(1, now_s).step());
  if (!there) return false;
  const uint64_t bytes = std::max<int64_t>(0, pinned_bytes_.integer(0));
  const bool already = pinned_bytes_.integer(1) != 0;
  const uint64_t of_owner = std::max<int64_t>(0, pinned_bytes_.integer(2));
  pinned_bytes_.reset();
  if (!already && bounds_.owner_pinned_bytes > 0 && of_owner + bytes > bounds_.owner_pinned_bytes) {
    return false;
  }
  HEARTH_TRY(pin_.bind(0, until_s).bind(1, row).run());
  ranking_.pin(row, until_s);
  return true;
}

}  // namespace hearth::engine
