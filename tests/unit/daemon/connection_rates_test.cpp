#include "daemon/broker/process/connection_rates.h"

#include <doctest/doctest.h>

namespace hearth::broker {
namespace {

TEST_CASE("new connections are bounded at once and per second, for each user alone") {
  FakeClock clock;
  ConnectionRates rates(clock);
  const auto admitted = [&](uint32_t uid, int64_t tries) {
    int64_t count = 0;
    for (int64_t i = 0; i < tries; ++i) count += rates.may_connect(uid) ? 1 : 0;
    return count;
  };
  CHECK(admitted(7, 5000) == ConnectionRates::kAtOnce);
  CHECK(admitted(8, 10) == 10);
  clock.advance_us(100'000);
  CHECK(admitted(7, 5000) == ConnectionRates::kPerSecond / 10);
  // Idle time saves up no more than the first burst.
  clock.advance_us(1'000'000'000);
  CHECK(admitted(7, 5000) == ConnectionRates::kAtOnce);
}

}  // namespace
}  // namespace hearth::broker
