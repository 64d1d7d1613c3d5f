#include "engine/kv/elastic_pools.h"

#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "tests/unit/engine/kv_rig.h"

namespace hearth::engine {
namespace {

/// Blocks of 100 bytes in a full group of 64 and a recurrent group of 16.
MemoryPlan plan_with_floor(uint64_t floor_bytes) {
  MemoryPlan plan;
  plan.block_size = 4;
  plan.groups = {{.num_blocks = 64, .block_bytes = 100, .max_blocks = 64},
                 {.num_blocks = 16, .block_bytes = 100, .max_blocks = 0}};
  plan.kv_bytes = 8000;
  plan.kv_floor_bytes = floor_bytes;
  return plan;
}

TEST_CASE("extents fill a granule; bytes are shared out in proportion to the pools") {
  MemoryPlan plan = plan_with_floor(0);
  plan.set_extents(350);
  CHECK(plan.groups[0].extent_blocks == 4);
  CHECK(plan.groups[0].num_extents() == 16);
  CHECK(plan.extents_within(8000) == std::vector<int32_t>{16, 4});
  CHECK(plan.extents_within(1'000'000) == std::vector<int32_t>{16, 4});
  CHECK(plan.extents_within(4000) == std::vector<int32_t>{8, 2});
  CHECK(plan.extents_within(3999) == std::vector<int32_t>{7, 1});
  // One extent, and the blocks that the state of one sequence takes.
  CHECK(plan.extents_within(0) == std::vector<int32_t>{1, 1});
  CHECK(plan.floor_bytes() == 800);
  plan.set_extents(150);
  CHECK(plan.extents_within(0) == std::vector<int32_t>{1, 2});
  plan.set_extents(0);
  CHECK(plan.extents_within(0) == std::vector<int32_t>{0, 0});
  CHECK(plan.floor_bytes() == 8000);
}

/// Counts the blocks that are backed; `limit` of them at most.
struct CountedMemory : BlockMemory {
  bool back(int32_t, int32_t first, int32_t end) override {
    if (backed + end - first > limit) return false;
    backed += end - first;
    return true;
  }
  void give_back(int32_t, int32_t first, int32_t end) override { backed -= end - first; }
  uint64_t backed_bytes() const override { return 100 * static_cast<uint64_t>(backed); }
  int32_t backed = 0;
  int32_t limit = 1000;
};

struct Bench {
  explicit Bench(uint64_t floor_bytes) : plan(plan_with_floor(floor_bytes)) {
    plan.groups.resize(1);
    plan.kv_bytes = 6400;
    plan.set_extents(400);
    const std::vector<KvGroup> groups = {{.num_blocks = 64, .extent_blocks = 4}};
    kv = std::make_unique<KvCache>(4, groups);
    pools = std::make_unique<ElasticPools>(*kv, memory, plan);
  }
  /// A text of 10 blocks, computed and released: its prefix is cached.
  void compute_text(int32_t first) {
    const std::vector<int32_t> tokens = numbers(40, first);
    SequenceBlocks seq;
    kv->begin(seq, "s", tokens, 39);
    compute(*kv, seq, tokens);
    kv->release(seq);
    check(*kv, {});
  }
  MemoryPlan plan;
  CountedMemory memory;
  std::unique_ptr<KvCache> kv;
  std::unique_ptr<ElasticPools> pools;
};

TEST_CASE("memory that nothing uses is given back down to the floor, and no bound goes below it") {
  Bench bench(1000);
  CHECK(bench.plan.floor_bytes() == 800);
  CHECK(bench.pools->backed_bytes() == 0);
  SequenceBlocks seq;
  bench.kv->begin_private(seq);
  compute(*bench.kv, seq, numbers(60));
  CHECK(bench.pools->backed_bytes() == 1600);
  bench.kv->release(seq);
  bench.pools->give_back_unused();
  CHECK(bench.pools->backed_bytes() == 800);
  bench.pools->set_bound(0);
  CHECK(bench.pools->bound_bytes() == 800);
  bench.pools->settle();
  CHECK(bench.pools->backed_bytes() == 800);
}

TEST_CASE("a bound is kept; a lower one evicts prefixes, a higher one lets them grow") {
  Bench bench(0);
  CHECK(bench.pools->bound_bytes() == 6400);
  for (int32_t i = 0; i < 4; ++i) bench.compute_text(100 * i);
  CHECK(bench.pools->backed_bytes() == 4000);
  bench.pools->give_back_unused();
  CHECK(bench.pools->backed_bytes() == 4000);  // all of it caches prefixes
  bench.pools->set_bound(2000);
  CHECK(bench.pools->backed_bytes() == 4000);
  bench.pools->settle();
  CHECK(bench.pools->backed_bytes() == 2000);
  check(*bench.kv, {});
  bench.compute_text(1000);
  CHECK(bench.pools->backed_bytes() == 2000);
  bench.pools->set_bound(6400);
  bench.compute_text(2000);
  CHECK(bench.pools->backed_bytes() > 2000);
}

TEST_CASE("a device without memory is asked again once the bound is set again") {
  Bench bench(0);
  bench.compute_text(0);
  bench.memory.limit = bench.memory.backed;
  bench.compute_text(100);  // in the place of the prefix
  CHECK(bench.kv->bounded());
  CHECK(bench.pools->backed_bytes() == 1200);
  bench.memory.limit = 1000;
  bench.compute_text(200);
  CHECK(bench.pools->backed_bytes() == 1200);
  bench.pools->set_bound(bench.pools->bound_bytes());
  CHECK_FALSE(bench.kv->bounded());
  bench.compute_text(300);
  CHECK(bench.pools->backed_bytes() > 1200);
}

KvGroup elastic(int32_t num_blocks, int32_t extent_blocks, int32_t window = 0) {
  return {.num_blocks = num_blocks, .window = window, .extent_blocks = extent_blocks};
}

TEST_CASE("memory is backed as blocks are first used, before any prefix is evicted") {
  const std::vector<KvGroup> groups = {elastic(16, 3), elastic(12, 2, 8)};
  KvCache kv(4, groups);
  CountedMemory memory;
  kv.set_memory(&memory);
  SequenceBlocks a;
  kv.begin(a, "s", numbers(20), 19);
  compute(kv, a, numbers(20));
  CHECK(memory.backed == 6 + 6);
  kv.release(a);
  check(kv, {});
  SequenceBlocks b;
  kv.begin(b, "s", numbers(20, 100), 19);
  compute(kv, b, numbers(20, 100));
  CHECK(kv.pool(0).num_cached() == 5);  // none was evicted
  CHECK(kv.cached_tokens("s", numbers(20), 19) == 16);
  check(kv, {&b});
  kv.release(b);
}

TEST_CASE("under a lower limit prefixes are evicted and extents given back, but none in use") {
  const std::vector<KvGroup> groups = {elastic(16, 2)};
  KvCache kv(4, groups);
  CountedMemory memory;
  kv.set_memory(&memory);
  SequenceBlocks a, b;
  kv.begin(a, "s", numbers(16), 15);
  compute(kv, a, numbers(16));
  kv.begin(b, "s", numbers(16, 100), 15);
  compute(kv, b, numbers(16, 100));
  kv.release(a);
  CHECK(memory.backed == 8);
  CHECK(kv.pool(0).num_cached() == 4);
  kv.set_limits(std::vector<int32_t>{1});
  CHECK(kv.bounded());
  kv.shrink();
  CHECK(memory.backed == 4);  // of b
  CHECK(kv.pool(0).num_cached() == 0);
  check(kv, {&b});
  std::vector<BlockCopy> copies;
  CHECK_FALSE(kv.reserve(b, 17, copies));
  check(kv, {&b});
  kv.set_limits(std::vector<int32_t>{3});
  CHECK(kv.reserve(b, 17, copies));
  CHECK(memory.backed == 6);
  kv.release(b);
  kv.shrink();
  CHECK(memory.backed == 6);  // within the limit
  kv.give_back_unused(std::vector<int32_t>{1});
  CHECK(memory.backed == 4);  // cached prefixes stay
  CHECK(kv.cached_tokens("s", numbers(16, 100), 16) == 16);
  check(kv, {});
}

TEST_CASE("a device without memory is like a pool without blocks") {
  const std::vector<KvGroup> groups = {elastic(16, 2)};
  KvCache kv(4, groups);
  CountedMemory memory;
  memory.limit = 5;
  kv.set_memory(&memory);
  SequenceBlocks a;
  std::vector<BlockCopy> copies;
  kv.begin(a, "s", numbers(40), 39);
  CHECK_FALSE(kv.reserve(a, 24, copies));
  check(kv, {&a});
  CHECK(kv.bounded());
  compute(kv, a, numbers(16));
  kv.release(a);
  // Cached blocks make room where memory does not.
  SequenceBlocks b;
  kv.begin(b, "s", numbers(16, 100), 15);
  compute(kv, b, numbers(16, 100));
  CHECK(kv.cached_tokens("s", numbers(16), 16) == 0);
  check(kv, {&b});
  kv.release(b);
  check(kv, {});
}

}  // namespace
}  // namespace hearth::engine
