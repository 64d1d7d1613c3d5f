#include "engine/step_cost.h"

#include <doctest/doctest.h>

namespace hearth::engine {
namespace {

/// A device whose steps take 40 ms, and per decode row and prefill token what is given.
struct Device {
  double row_us, token_us;
  int64_t step_us(int32_t rows, int32_t tokens) const {
    return static_cast<int64_t>(40'000 + rows * row_us + tokens * token_us);
  }
};

TEST_CASE("before any measure a first chunk is small and not empty") {
  const StepCost cost;
  CHECK(cost.decode_us(1) == 20'000);
  CHECK(cost.tokens_within(cost.prefill_room_us(0, 3, 250'000)) >= 1);
  CHECK(cost.tokens_within(cost.prefill_room_us(0, 3, 250'000)) < 16);
  CHECK(cost.wants_plain_step(1));
}

TEST_CASE("a learned chunk makes a step as long as wanted") {
  for (const Device device : {Device{1'000, 100}, Device{500, 2'500}, Device{5'000, 20'000}}) {
    CAPTURE(device.token_us);
    StepCost cost;
    for (int i = 0; i < 30; ++i) {
      const int32_t tokens = cost.tokens_within(cost.prefill_room_us(0, 3, 250'000));
      cost.measured(0, tokens > 0 ? tokens : 1, device.step_us(0, tokens));
      if (cost.wants_plain_step(4)) cost.measured(4, 0, device.step_us(4, 0));
      if (cost.wants_plain_step(1)) cost.measured(1, 0, device.step_us(1, 0));
      const int32_t beside = cost.tokens_within(cost.prefill_room_us(4, 3, 250'000));
      cost.measured(4, beside, device.step_us(4, beside));
    }
    const int32_t alone = cost.tokens_within(cost.prefill_room_us(0, 3, 250'000));
    CHECK(device.step_us(0, alone) <= 255'000);
    CHECK(device.step_us(0, alone) >= 220'000 - 20'000);
    const int32_t beside = cost.tokens_within(cost.prefill_room_us(4, 3, 250'000));
    const double plain = static_cast<double>(device.step_us(4, 0));
    CHECK(static_cast<double>(device.step_us(4, beside)) <= 3.1 * plain);
    CHECK(static_cast<double>(device.step_us(4, beside)) >= 2.5 * plain);
  }
}

TEST_CASE("one odd measure changes little, whatever it is") {
  for (const int64_t odd : {int64_t{0}, int64_t{1}, int64_t{3'600'000'000}}) {
    StepCost cost;
    for (int i = 0; i < 20; ++i) cost.measured(4, 0, 50'000);
    cost.measured(4, 0, odd);
    CHECK(cost.decode_us(4) >= 50'000 * 0.75);
    CHECK(cost.decode_us(4) <= 50'000 * 1.5);
    for (int i = 0; i < 20; ++i) cost.measured(4, 64, 200'000);
    const double before = cost.token_us();
    cost.measured(4, 64, odd);
    CHECK(cost.token_us() >= before * 0.7);
    CHECK(cost.token_us() <= before * 1.5);
    CHECK(cost.tokens_within(1e300) > 0);
    CHECK(cost.tokens_within(-1) == 0);
  }
}

TEST_CASE("a plain step is wanted for each new width, and now and then") {
  StepCost cost;
  cost.measured(4, 0, 50'000);
  CHECK_FALSE(cost.wants_plain_step(3));
  CHECK(cost.wants_plain_step(5));
  int mixed = 0;
  while (!cost.wants_plain_step(4)) {
    cost.measured(4, 16, 90'000);
    REQUIRE(++mixed < 1000);
  }
  CHECK(mixed > 20);
  cost.measured(4, 0, 50'000);
  CHECK_FALSE(cost.wants_plain_step(4));
}

}  // namespace
}  // namespace hearth::engine
