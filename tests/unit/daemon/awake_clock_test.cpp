#include "daemon/broker/process/awake_clock.h"

#include <doctest/doctest.h>

namespace hearth::broker {
namespace {

TEST_CASE("the awake clock advances by what it observes and leaves out jumps") {
  FakeClock machine;
  const AwakeClock clock(machine);
  const int64_t begin_us = clock.now_us();
  machine.advance_us(100'000);
  CHECK(clock.now_us() - begin_us == 100'000);
  machine.advance_us(3'600'000'000);  // paused for an hour
  CHECK(clock.now_us() - begin_us == 100'000);
  machine.advance_us(4'000'000);
  CHECK(clock.now_us() - begin_us == 4'100'000);
}

}  // namespace
}  // namespace hearth::broker
