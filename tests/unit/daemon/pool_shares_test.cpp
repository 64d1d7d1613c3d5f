#include "daemon/broker/residency/pool_shares.h"

#include <doctest/doctest.h>

#include <numeric>
#include <random>

namespace hearth::broker {
namespace {

using Bounds = std::vector<uint64_t>;

TEST_CASE("what is left is divided equally; what one cannot use goes to the others") {
  const std::vector<PoolUse> pools = {
      {.floor_bytes = 10, .reserved_bytes = 100, .backed_bytes = 40},
      {.floor_bytes = 10, .reserved_bytes = 20, .backed_bytes = 4},
      {.floor_bytes = 10, .reserved_bytes = 500, .backed_bytes = 0}};
  CHECK(share_pools(pools, 0, 0) == Bounds{40, 10, 10});
  CHECK(share_pools(pools, 90, 0) == Bounds{80, 20, 50});
  CHECK(share_pools(pools, 10'000, 0) == Bounds{100, 20, 500});
  CHECK(share_pools({}, 10, 10).empty());
}

TEST_CASE("pools whose requests wait come before those that could only cache more") {
  const std::vector<PoolUse> pools = {
      {.floor_bytes = 10, .reserved_bytes = 100, .backed_bytes = 40},
      {.floor_bytes = 10, .reserved_bytes = 100, .backed_bytes = 30, .is_short = true}};
  CHECK(share_pools(pools, 20, 0) == Bounds{40, 50});
}

TEST_CASE("idle pools give back down to their floor, those unused longest first") {
  const std::vector<PoolUse> pools = {
      {.floor_bytes = 10, .reserved_bytes = 99, .backed_bytes = 40, .last_used_us = 1},
      {.floor_bytes = 10,
       .reserved_bytes = 99,
       .backed_bytes = 40,
       .idle = true,
       .last_used_us = 3},
      {.floor_bytes = 10,
       .reserved_bytes = 99,
       .backed_bytes = 40,
       .idle = true,
       .last_used_us = 2}};
  CHECK(share_pools(pools, 0, 20) == Bounds{40, 40, 20});
  CHECK(share_pools(pools, 0, 50) == Bounds{40, 20, 10});
  CHECK(share_pools(pools, 0, UINT64_MAX) == Bounds{40, 10, 10});
}

TEST_CASE("bounds add up to no more than there is, and none is below what a busy pool has") {
  std::mt19937_64 random(1);
  for (int round = 0; round < 2'000; ++round) {
    std::vector<PoolUse> pools(random() % 6);
    uint64_t taken = 0;
    for (PoolUse& pool : pools) {
      pool.reserved_bytes = 1 + random() % 100;
      pool.floor_bytes = random() % (pool.reserved_bytes + 1);
      pool.backed_bytes = random() % (pool.reserved_bytes + 1);
      pool.idle = random() % 2 == 0;
      pool.is_short = random() % 4 == 0;
      pool.last_used_us = static_cast<int64_t>(random() % 10);
      taken += pool.taken_bytes();
    }
    const uint64_t left = random() % 200;
    const std::vector<uint64_t> bounds = share_pools(pools, left, random() % 3 == 0 ? 50 : 0);
    REQUIRE(bounds.size() == pools.size());
    CHECK(std::accumulate(bounds.begin(), bounds.end(), uint64_t{0}) <= taken + left);
    for (size_t i = 0; i < pools.size(); ++i) {
      CHECK(bounds[i] >= (pools[i].idle ? pools[i].floor_bytes : pools[i].taken_bytes()));
      CHECK(bounds[i] <= pools[i].reserved_bytes);
    }
  }
}

}  // namespace
}  // namespace hearth::broker
