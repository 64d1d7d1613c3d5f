#include "engine/cost/step_cost.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <span>

namespace hearth::engine {
namespace {

/// A device whose steps take 40 ms, and the given times per decode row and prefill token.
struct Device {
  double row_us, token_us;
  double position_us = 0;  ///< attention's time per token and earlier position
  int64_t step_us(int32_t rows, int32_t tokens, int32_t first = 0) const {
    const double middle = first + tokens / 2.0;
    return static_cast<int64_t>(40'000 + rows * row_us +
                                tokens * (token_us + middle * position_us));
  }
};

void measure(StepCost& cost, int32_t rows, int32_t tokens, int64_t step_us, int32_t first = 0) {
  const PrefillRun run{first, tokens};
  cost.measured(rows, std::span(&run, tokens > 0 ? 1 : 0), step_us);
}

TEST_CASE("before any measurement a first chunk is small and not empty") {
  const StepCost cost;
  CHECK(cost.decode_us(1) == 20'000);
  CHECK(cost.tokens_within(cost.prefill_room_us(0, 3, 250'000), 0) >= 1);
  CHECK(cost.tokens_within(cost.prefill_room_us(0, 3, 250'000), 0) < 16);
  CHECK(cost.wants_plain_step(1));
}

TEST_CASE("unmeasured costs are unknown; stored costs are known, and are corrected") {
  StepCost cost;
  CHECK_FALSE(cost.knows({0, 100}));
  measure(cost, 0, 100, 1'000'000);  // the very first: untouched pages
  CHECK_FALSE(cost.knows({0, 100}));
  measure(cost, 0, 100, 10'000);
  CHECK(cost.knows({0, 200}));
  CHECK_FALSE(cost.knows({0, 300}));  // positions from 256 on have their own cost
  measure(cost, 0, 100, 20'000, 300);
  CHECK(cost.knows({0, 300}));
  CHECK_FALSE(cost.knows({0, 1000}));

  StepCost next;
  next.restore(cost.measured_costs());
  CHECK(next.knows({0, 300}));
  CHECK_FALSE(next.knows({0, 1000}));
  CHECK(next.prefill_us({0, 300}) == cost.prefill_us({0, 300}));
  for (int i = 0; i < 6; ++i) measure(next, 0, 100, 2'000);  // a machine that became faster
  CHECK(next.prefill_us({0, 100}) < 3'000);
  StepCost wrong;
  wrong.restore({.token_us = {-1, 1e300, 0, std::nan("")}});
  CHECK_FALSE(wrong.knows({0, 1}));
  CHECK_FALSE(wrong.knows({300, 1}));
}

TEST_CASE("a learned chunk makes a step as long as wanted") {
  for (const Device device : {Device{1'000, 100}, Device{500, 2'500}, Device{5'000, 20'000}}) {
    CAPTURE(device.token_us);
    StepCost cost;
    for (int i = 0; i < 30; ++i) {
      const int32_t tokens = cost.tokens_within(cost.prefill_room_us(0, 3, 250'000), 0);
      measure(cost, 0, tokens > 0 ? tokens : 1, device.step_us(0, tokens));
      if (cost.wants_plain_step(4)) measure(cost, 4, 0, device.step_us(4, 0));
      if (cost.wants_plain_step(1)) measure(cost, 1, 0, device.step_us(1, 0));
      const int32_t prefill = cost.tokens_within(cost.prefill_room_us(4, 3, 250'000), 0);
      measure(cost, 4, prefill, device.step_us(4, prefill));
    }
    const int32_t alone = cost.tokens_within(cost.prefill_room_us(0, 3, 250'000), 0);
    CHECK(device.step_us(0, alone) <= 255'000);
    CHECK(device.step_us(0, alone) >= 220'000 - 20'000);
    const int32_t prefill = cost.tokens_within(cost.prefill_room_us(4, 3, 250'000), 0);
    const double plain = static_cast<double>(device.step_us(4, 0));
    CHECK(static_cast<double>(device.step_us(4, prefill)) <= 3.1 * plain);
    CHECK(static_cast<double>(device.step_us(4, prefill)) >= 2.5 * plain);
  }
}

TEST_CASE(
    "late tokens of a long prompt have their own cost, and do not change that of early ones") {
  const Device device{1'000, 200, 0.5};
  StepCost cost;
  for (int i = 0; i < 8; ++i) measure(cost, 4, 0, device.step_us(4, 0));
  const auto prefill = [&](int32_t prompt) {
    double worst = 0;
    for (int32_t at = 0; at < prompt;) {
      const int32_t fits = cost.tokens_within(cost.prefill_room_us(4, 3, 250'000), at);
      const int32_t tokens = std::clamp(fits, 1, prompt - at);
      worst = std::max(worst, static_cast<double>(device.step_us(4, tokens, at)));
      measure(cost, 4, tokens, device.step_us(4, tokens, at), at);
      at += tokens;
    }
    return worst / static_cast<double>(device.step_us(4, 0));
  };
  prefill(8000);
  // The tokens at the end cost twenty times as much; the next prompt still fills its first step,
  // and no step of it is longer than wanted.
  const int32_t begin = cost.tokens_within(cost.prefill_room_us(4, 3, 250'000), 0);
  CHECK(begin >= 250);
  CHECK(begin <= 500);
  CHECK(cost.token_us(7900) > 10 * cost.token_us(0));
  CHECK(cost.prefill_us({0, 8000}) > 8000 * cost.token_us(0));
  CHECK(prefill(8000) <= 4);
}

TEST_CASE("a position that was never measured has its neighbour's cost") {
  StepCost cost;
  measure(cost, 0, 100, 10'000, 3000);
  CHECK(cost.token_us(100'000) == cost.token_us(3000));
  CHECK(cost.token_us(0) == cost.token_us(3000));
  CHECK(cost.token_us(2'000'000'000) > 0);
  CHECK(cost.tokens_within(1e300, 2'000'000'000) > 0);
}

TEST_CASE("prefill has room even where one pass over the weights takes most of the time") {
  StepCost cost;
  for (int i = 0; i < 20; ++i) measure(cost, 1, 0, 200'000);
  CHECK(cost.prefill_room_us(0, 3, 250'000) == doctest::Approx(400'000));
  CHECK(cost.prefill_room_us(0, 3, 900'000) == doctest::Approx(700'000));
}

TEST_CASE("one odd measurement changes little, whatever it is") {
  for (const int64_t odd : {int64_t{0}, int64_t{1}, int64_t{3'600'000'000}}) {
    StepCost cost;
    for (int i = 0; i < 20; ++i) measure(cost, 4, 0, 50'000);
    measure(cost, 4, 0, odd);
    CHECK(cost.decode_us(4) >= 50'000 * 0.75);
    CHECK(cost.decode_us(4) <= 50'000 * 1.5);
    for (int i = 0; i < 20; ++i) measure(cost, 4, 64, 200'000);
    const double before = cost.token_us(0);
    measure(cost, 4, 64, odd);
    CHECK(cost.token_us(0) >= before * 0.7);
    CHECK(cost.token_us(0) <= before * 1.5);
    CHECK(cost.tokens_within(1e300, 0) > 0);
    CHECK(cost.tokens_within(-1, 0) == 0);
  }
}

TEST_CASE("a plain step is wanted for each new width, and now and then") {
  StepCost cost;
  measure(cost, 4, 0, 50'000);
  CHECK_FALSE(cost.wants_plain_step(3));
  CHECK(cost.wants_plain_step(5));
  int mixed = 0;
  while (!cost.wants_plain_step(4)) {
    measure(cost, 4, 16, 90'000);
    REQUIRE(++mixed < 1000);
  }
  CHECK(mixed > 20);
  measure(cost, 4, 0, 50'000);
  CHECK_FALSE(cost.wants_plain_step(4));
}

TEST_CASE("rows between measured counts cost what lies between") {
  StepCost cost;
  CHECK(cost.rows_us(3) == 20'000);
  for (int i = 0; i < 10; ++i) measure(cost, 1, 0, 10'000);
  CHECK(cost.rows_us(1) == doctest::Approx(10'000));
  CHECK(cost.rows_us(3) > 10'000);  // unknown: assumed a little more expensive
  CHECK(cost.rows_us(3) < 12'000);
  for (int i = 0; i < 10; ++i) measure(cost, 5, 0, 14'000);
  CHECK(cost.rows_us(3) == doctest::Approx(12'000));
  CHECK(cost.rows_us(7) == doctest::Approx(16'000));  // extrapolated from the last two
  CHECK(cost.rows_us(40) > cost.rows_us(7));
  for (int i = 0; i < 10; ++i) measure(cost, 40, 0, 60'000);
  CHECK(cost.rows_us(40) == doctest::Approx(60'000));
  CHECK(cost.rows_us(22) == doctest::Approx(14'000 + 17 * 46'000.0 / 35));
  // Never less than for fewer rows, whatever was measured.
  for (int i = 0; i < 10; ++i) measure(cost, 8, 0, 9'000);
  CHECK(cost.rows_us(8) >= cost.rows_us(5));
}

TEST_CASE("a row count that looked expensive is tried again after a while") {
  StepCost cost;
  for (int i = 0; i < 10; ++i) measure(cost, 1, 0, 10'000);
  for (int i = 0; i < 10; ++i) measure(cost, 4, 0, 90'000);
  CHECK(cost.rows_us(4) == doctest::Approx(90'000));
  CHECK(cost.steps_since(4) == 0);
  for (int i = 0; i < 2000; ++i) measure(cost, 1, 0, 10'000);
  CHECK(cost.steps_since(4) == 2000);
  CHECK(cost.steps_since(7) == INT64_MAX);
  CHECK(cost.rows_us(4) < 15'000);
}

}  // namespace
}  // namespace hearth::engine
