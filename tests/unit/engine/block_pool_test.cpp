#include "engine/kv/block_pool.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

namespace hearth::engine {
namespace {

TEST_CASE("blocks go from free to used to cached and back") {
  BlockPool pool(3);
  CHECK(pool.num_free() == 3);
  const int32_t a = *pool.allocate();
  const int32_t b = *pool.allocate();
  const int32_t c = *pool.allocate();
  CHECK_FALSE(pool.allocate().has_value());
  CHECK(pool.num_used() == 3);

  pool.set_indexed(a);
  pool.add_ref(a);
  pool.release(a);
  CHECK(pool.num_cached() == 0);  // one reference is left
  pool.release(a);
  CHECK(pool.num_cached() == 1);
  pool.release(b);  // not indexed: free at once
  CHECK(pool.num_free() == 1);
  CHECK(pool.num_available() == 2);
  CHECK(pool.num_used() == 1);

  pool.add_ref(a);  // a hit
  CHECK(pool.num_cached() == 0);
  CHECK(pool.ref_count(a) == 1);
  pool.release(a);
  pool.clear_indexed(a);  // evicted
  CHECK(pool.num_free() == 2);
  pool.set_indexed(c);
  pool.clear_indexed(c);  // removed from the index while in use
  pool.release(c);
  CHECK(pool.num_free() == 3);
}

TEST_CASE("the cached block released longest ago is the oldest") {
  BlockPool pool(4);
  std::vector<int32_t> blocks;
  for (int i = 0; i < 4; ++i) {
    blocks.push_back(*pool.allocate());
    pool.set_indexed(blocks.back());
  }
  CHECK_FALSE(pool.next_evicted().has_value());
  for (const int i : {2, 0, 3, 1}) pool.release(blocks[static_cast<size_t>(i)]);
  CHECK(*pool.next_evicted() == blocks[2]);
  pool.add_ref(blocks[2]);  // used again, so youngest when it is released
  pool.release(blocks[2]);
  CHECK(*pool.next_evicted() == blocks[0]);
  pool.clear_indexed(blocks[3]);  // from the middle
  for (const int i : {0, 1, 2}) {
    CHECK(*pool.next_evicted() == blocks[static_cast<size_t>(i)]);
    pool.clear_indexed(blocks[static_cast<size_t>(i)]);
  }
  CHECK(pool.num_free() == 4);
}

TEST_CASE(
    "the owner with most cached blocks loses first, and of them the one released longest ago") {
  BlockPool pool(7, 2);
  std::vector<int32_t> blocks;
  for (int i = 0; i < 7; ++i) {
    blocks.push_back(*pool.allocate(i < 2 ? 0 : 1));
    if (i < 6) pool.set_indexed(blocks.back(), i < 2 ? 0 : 1);
  }
  CHECK(pool.num_held(0) == 2);
  CHECK(pool.num_held(1) == 5);
  for (const size_t i : {0u, 1u, 4u, 3u, 2u}) pool.release(blocks[i]);
  // Five, of which two are in use, compared with two.
  for (const size_t i : {4u, 3u, 2u}) {
    CHECK(*pool.next_evicted() == blocks[i]);
    pool.clear_indexed(blocks[i]);
    if (pool.num_held(1) == 2) pool.allocate(1);
  }
  CHECK(*pool.next_evicted() == blocks[0]);  // no other block can be freed
  std::vector<int32_t> refs(7, 0);
  for (const size_t i : {2u, 5u, 6u}) refs[static_cast<size_t>(blocks[i])] = 1;
  pool.check_integrity(refs);
  pool.release(blocks[6]);  // not indexed
  CHECK(pool.num_held(1) == 2);
  pool.release(blocks[5]);
  CHECK(*pool.next_evicted() == blocks[0]);  // as many on both
  pool.clear_indexed(blocks[0]);
  CHECK(*pool.next_evicted() == blocks[5]);
}

TEST_CASE("any sequence of operations agrees with a simple model") {
  for (uint32_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    BlockPool pool(12);
    std::vector<int32_t> refs(12, 0);
    std::deque<int32_t> cached;
    for (int step = 0; step < 400; ++step) {
      const auto block = static_cast<int32_t>(random() % 12);
      const auto b = static_cast<size_t>(block);
      const auto is_cached = std::find(cached.begin(), cached.end(), block);
      switch (random() % 5) {
        case 0: {
          const auto taken = pool.allocate();
          if (taken.has_value()) {
            CHECK(refs[static_cast<size_t>(*taken)] == 0);
            refs[static_cast<size_t>(*taken)] = 1;
          }
          break;
        }
        case 1:
          if (refs[b] == 0 && is_cached == cached.end()) break;
          if (refs[b]++ == 0) cached.erase(is_cached);
          pool.add_ref(block);
          break;
        case 2:
          if (refs[b] == 0) break;
          pool.release(block);
          if (--refs[b] == 0 && pool.indexed(block)) cached.push_back(block);
          break;
        case 3:
          if (refs[b] > 0 && !pool.indexed(block)) pool.set_indexed(block);
          break;
        default:
          if (cached.empty()) break;
          CHECK(*pool.next_evicted() == cached.front());
          pool.clear_indexed(cached.front());
          cached.pop_front();
      }
      REQUIRE(pool.num_cached() == static_cast<int32_t>(cached.size()));
      pool.check_integrity(refs);
    }
  }
}

TEST_CASE("extents are backed and given back around the blocks in use") {
  BlockPool pool(10, 1, 4);  // extents of 4, 4 and 2 blocks
  CHECK(pool.num_extents() == 3);
  CHECK(pool.num_available() == 10);
  CHECK_FALSE(pool.allocate().has_value());
  CHECK(*pool.next_to_back() == 0);
  pool.set_backed(0, true);
  CHECK(pool.num_ready() == 4);
  CHECK(pool.num_growable() == 6);
  std::vector<int32_t> taken;
  for (int i = 0; i < 4; ++i) taken.push_back(*pool.allocate());
  CHECK(taken == std::vector<int32_t>{0, 1, 2, 3});
  CHECK_FALSE(pool.allocate().has_value());
  CHECK(*pool.next_to_back() == 1);
  pool.set_backed(1, true);
  pool.set_backed(2, true);
  CHECK(*pool.allocate() == 4);
  CHECK(*pool.last_empty() == 2);
  pool.set_backed(2, false);
  CHECK_FALSE(pool.last_empty().has_value());

  // The first free block is taken, wherever blocks were freed last.
  pool.release(1);
  pool.release(4);
  CHECK(*pool.last_empty() == 1);
  CHECK(*pool.allocate() == 1);
  pool.set_indexed(1);
  pool.release(1);
  CHECK(pool.num_cached() == 1);
  std::vector<int32_t> refs(10, 0);
  refs[0] = refs[2] = refs[3] = 1;
  pool.check_integrity(refs);

  pool.set_limit(1);
  CHECK(pool.over_limit());
  CHECK(pool.num_growable() == 0);
  CHECK(pool.num_available() == 5);  // four ready, one cached
  pool.set_backed(1, false);
  CHECK_FALSE(pool.over_limit());
  CHECK(pool.num_available() == 1);
  CHECK_FALSE(pool.next_to_back().has_value());
  pool.set_limit(2);
  CHECK(pool.num_growable() == 4);
  pool.set_limit(3);
  CHECK(pool.num_growable() == 6);
  pool.check_integrity(refs);
}

}  // namespace
}  // namespace hearth::engine
