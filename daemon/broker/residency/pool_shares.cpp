#include "daemon/broker/residency/pool_shares.h"

#include <algorithm>
#include <numeric>

namespace hearth::broker {

uint64_t PoolUse::taken_bytes() const {
  return std::min(reserved_bytes, std::max(backed_bytes, floor_bytes));
}

std::vector<uint64_t> share_pools(std::span<const PoolUse> pools, uint64_t left, uint64_t reclaim) {
  std::vector<uint64_t> bounds;
  for (const PoolUse& pool : pools) bounds.push_back(pool.taken_bytes());

  std::vector<size_t> order(pools.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](size_t i) { return pools[i].last_used_us; });
  std::vector<size_t> takers;
  const bool any_short = std::ranges::any_of(pools, &PoolUse::is_short);
  for (const size_t i : order) {
    const uint64_t given = std::min(reclaim, pools[i].spare_bytes());
    bounds[i] -= given;
    reclaim -= given;
    if (given == 0 && (pools[i].is_short || !any_short)) takers.push_back(i);
  }
  // Those that can use the least come first: what they leave goes to the others.
  const auto usable = [&](size_t i) { return pools[i].reserved_bytes - bounds[i]; };
  std::ranges::sort(takers, {}, usable);
  for (size_t n = 0; n < takers.size(); ++n) {
    const uint64_t share = std::min(usable(takers[n]), left / (takers.size() - n));
    bounds[takers[n]] += share;
    left -= share;
  }
  return bounds;
}

}  // namespace hearth::broker
