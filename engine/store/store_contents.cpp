#include "engine/store/store_contents.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "engine/store/stored_row.h"

namespace hearth::engine {
namespace {

/// A row that was read so often before counts as used so much later.
constexpr int64_t kHitWorthS = 3600;
constexpr int64_t kMaxHitsCounted = 24;
/// Eviction makes room in bulk: this share of the budget at once.
constexpr uint64_t kEvictShare = 32;

}  // namespace

Result<void> StoreContents::open(Database& database) {
  database_ = &database;
  HEARTH_ASSIGN_OR_RETURN(
      erase_, database.prepare("DELETE FROM chunk WHERE id = ? RETURNING owner, bytes"));
  HEARTH_ASSIGN_OR_RETURN(
      victims_,
      database.prepare("SELECT id, last FROM chunk WHERE owner = ? AND pinned_until <= ? ORDER BY"
                       " used + min(hits, ?) * ?, idx DESC LIMIT 64"));
  HEARTH_ASSIGN_OR_RETURN(has_child_,
                          database.prepare("SELECT 1 FROM chunk WHERE parent = ? LIMIT 1"));
  HEARTH_ASSIGN_OR_RETURN(
      pinned_bytes_,
      database.prepare("SELECT c.bytes, c.pinned_until > ?2, (SELECT sum(bytes) FROM chunk WHERE"
                       " owner = c.owner AND pinned_until > ?2) FROM chunk c WHERE c.id = ?1"));
  HEARTH_ASSIGN_OR_RETURN(
      pin_, database.prepare("UPDATE chunk SET pinned_until = max(pinned_until, ?) WHERE id = ?"));
  return recount();
}

void StoreContents::close() {
  for (Statement* statement : {&erase_, &victims_, &has_child_, &pinned_bytes_, &pin_}) {
    *statement = Statement();
  }
  database_ = nullptr;
}

Result<void> StoreContents::recount() {
  HEARTH_ASSIGN_OR_RETURN(
      Statement counts,
      database_->prepare("SELECT owner, count(*), sum(bytes) FROM chunk GROUP BY owner"));
  counts_.entries = counts_.bytes = 0;
  counts_.bytes_of_owner.clear();
  while (true) {
    HEARTH_ASSIGN_OR_RETURN(const bool more, counts.step());
    if (!more) return {};
    const auto bytes = static_cast<uint64_t>(std::max<int64_t>(0, counts.integer(2)));
    counts_.entries += static_cast<uint64_t>(counts.integer(1));
    counts_.bytes += bytes;
    counts_.bytes_of_owner[counts.text(0)] += bytes;
  }
}

void StoreContents::added(const std::string& owner, uint64_t bytes) {
  ++counts_.entries;
  counts_.bytes += bytes;
  counts_.bytes_of_owner[owner] += bytes;
}

Result<void> StoreContents::remove(int64_t row) {
  erase_.bind(0, row);
  HEARTH_ASSIGN_OR_RETURN(const bool was_there, erase_.step());
  if (!was_there) return {};
  const std::string owner = erase_.text(0);
  const auto bytes = static_cast<uint64_t>(std::max<int64_t>(0, erase_.integer(1)));
  HEARTH_TRY(erase_.run());
  counts_.entries -= std::min<uint64_t>(counts_.entries, 1);
  counts_.bytes -= std::min(counts_.bytes, bytes);
  uint64_t& of_owner = counts_.bytes_of_owner[owner];
  of_owner -= std::min(of_owner, bytes);
  return {};
}

Result<void> StoreContents::evict(int64_t now_s) {
  if (bounds_.owner_budget_bytes > 0) {
    const uint64_t goal = bounds_.owner_budget_bytes - bounds_.owner_budget_bytes / kEvictShare;
    std::vector<std::string> over;
    for (const auto& [owner, bytes] : counts_.bytes_of_owner) {
      if (bytes > bounds_.owner_budget_bytes) over.push_back(owner);
    }
    for (const std::string& owner : over) {
      while (counts_.bytes_of_owner[owner] > goal) {
        const uint64_t too_much = counts_.bytes_of_owner[owner] - goal;
        HEARTH_ASSIGN_OR_RETURN(const bool any, evict_of(owner, too_much, now_s));
        if (!any) break;
      }
    }
  }
  if (counts_.bytes <= bounds_.budget_bytes) return {};
  return evict_down_to(bounds_.budget_bytes - bounds_.budget_bytes / kEvictShare, now_s);
}

Result<void> StoreContents::evict_down_to(uint64_t goal, int64_t now_s) {
  while (counts_.bytes > goal) {
    std::vector<std::pair<uint64_t, std::string>> owners;
    for (const auto& [owner, bytes] : counts_.bytes_of_owner) {
      if (bytes > 0) owners.emplace_back(bytes, owner);
    }
    std::ranges::sort(owners, std::greater{});
    bool any = false;
    for (const auto& [bytes, owner] : owners) {
      HEARTH_ASSIGN_OR_RETURN(any, evict_of(owner, counts_.bytes - goal, now_s));
      if (any) break;
    }
    if (!any) return {};  // all pinned
  }
  return {};
}

// Least valuable first, but never a chunk that others continue: without it they would be lost.
Result<bool> StoreContents::evict_of(const std::string& owner, uint64_t at_least, int64_t now_s) {
  constexpr int kAtOnce = 8;  // then the owners are compared again
  std::vector<std::pair<int64_t, Hash128>> candidates;
  Statement& victims =
      victims_.bind(0, owner).bind(1, now_s).bind(2, kMaxHitsCounted).bind(3, kHitWorthS);
  while (true) {
    HEARTH_ASSIGN_OR_RETURN(const bool more, victims.step());
    if (!more) break;
    candidates.emplace_back(victims.integer(0), hash_from(victims.blob(1)));
  }
  const uint64_t before = counts_.bytes;
  int evicted = 0;
  for (const auto& [row, last] : candidates) {
    if (evicted == kAtOnce || (evicted > 0 && before - counts_.bytes >= at_least)) break;
    HEARTH_ASSIGN_OR_RETURN(const bool continued, has_child_.bind(0, hash_bytes(last)).step());
    has_child_.reset();
    if (continued) continue;
    HEARTH_TRY(remove(row));
    ++evicted;
  }
  if (evicted == 0 && !candidates.empty()) {
    // All of them are continued by what is used more: a long chain loses its beginning.
    HEARTH_TRY(remove(candidates.front().first));
    ++evicted;
  }
  counts_.evicted += static_cast<uint64_t>(evicted);
  return evicted > 0;
}

Result<bool> StoreContents::pin(int64_t row, int64_t until_s, int64_t now_s) {
  HEARTH_ASSIGN_OR_RETURN(const bool there, pinned_bytes_.bind(0, row).bind(1, now_s).step());
  if (!there) return false;
  const auto bytes = static_cast<uint64_t>(std::max<int64_t>(0, pinned_bytes_.integer(0)));
  const bool already = pinned_bytes_.integer(1) != 0;
  const auto of_owner = static_cast<uint64_t>(std::max<int64_t>(0, pinned_bytes_.integer(2)));
  pinned_bytes_.reset();
  if (!already && bounds_.owner_pinned_bytes > 0 && of_owner + bytes > bounds_.owner_pinned_bytes) {
    return false;
  }
  HEARTH_TRY(pin_.bind(0, until_s).bind(1, row).run());
  return true;
}

}  // namespace hearth::engine
