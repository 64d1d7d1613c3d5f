#include "engine/tiers/restore_plan.h"

#include <doctest/doctest.h>

#include <span>

namespace hearth::engine {
namespace {

constexpr int32_t kBlock = 16;

/// A device whose tokens take `token_us`, and additional time for each earlier position.
StepCost device(double token_us, double position_us = 0) {
  StepCost cost;
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 4; ++i) cost.measured(1, {}, 1'000);
    for (int32_t first = 0; first < 16'384; first += 256) {
      const PrefillRun run{first, 256};
      const double us = 1'000 + 256 * (token_us + position_us * (first + 128));
      cost.measured(0, std::span(&run, 1), static_cast<int64_t>(us));
    }
  }
  return cost;
}

TEST_CASE("loading and computing run at once only where neither is much faster than the other") {
  const StepCost cost = device(100);  // a block in 1.6 ms
  const auto choose = [&](double load_us) { return choose_way(cost, {kBlock, 0, 128, load_us}); };
  // As on two CPU cores: loading is 40 times as fast.
  CHECK(choose(40) == RestoreWay::kLoad);
  CHECK(choose(300) == RestoreWay::kLoad);
  CHECK(choose(500) == RestoreWay::kBoth);
  CHECK(choose(1'600) == RestoreWay::kBoth);
  CHECK(choose(5'000) == RestoreWay::kBoth);
  CHECK(choose(8'000) == RestoreWay::kCompute);
  CHECK(choose(100'000) == RestoreWay::kCompute);
  // Nor where it saves less than two steps, however slow both are.
  CHECK(choose_way(cost, {kBlock, 0, 2, 1'600}) != RestoreWay::kBoth);
  CHECK(choose_way(cost, {kBlock, 0, 0, 1'600}) != RestoreWay::kBoth);
}

TEST_CASE("loading and computing meet where both have taken as long") {
  const StepCost even = device(100);
  CHECK(meeting_block(even, {kBlock, 0, 128, 1'600}) == 64);
  CHECK(meeting_block(even, {kBlock, 100, 200, 3 * 1'600.0}) == 175);
  CHECK(meeting_block(even, {kBlock, 100, 200, 0}) == 100);
  CHECK(meeting_block(even, {kBlock, 100, 200, 1e12}) == 200);
  CHECK(meeting_block(even, {kBlock, 100, 100, 1'600}) == 100);
  // Where attention makes late tokens more expensive.
  const StepCost steep = device(10, 0.1);
  const StoredPrefix prefix{kBlock, 0, 1024, 8'000};
  const int32_t meeting = meeting_block(steep, prefix);
  const double computed = steep.prefill_us({0, meeting * kBlock});
  const double loaded = 8'000.0 * (1024 - meeting);
  CHECK(computed >= loaded);
  CHECK(steep.prefill_us({0, (meeting - 1) * kBlock}) < loaded + 8'000);
  CHECK(meeting > 400);
  CHECK(meeting < 624);
}

}  // namespace
}  // namespace hearth::engine
