#include "engine/cost/recent_rate.h"

#include <doctest/doctest.h>

namespace hearth::engine {
namespace {

constexpr int64_t kSecond = 1'000'000;

TEST_CASE("throughput is per wall clock time, and fades when nothing comes any more") {
  RecentThroughput rate;
  CHECK(rate.per_second(0) == 0);
  // 20 tokens in the first 10 ms are not 2000 tokens a second.
  rate.add(20, 0, 10'000);
  CHECK(rate.per_second(10'000) == doctest::Approx(40));
  // Ten a second, in bursts of busy time that a rate over busy time would multiply.
  for (int64_t i = 1; i <= 300; ++i) rate.add(1, i * kSecond / 10, i * kSecond / 10 + 1'000);
  CHECK(rate.per_second(30 * kSecond) == doctest::Approx(10).epsilon(0.05));
  CHECK(rate.per_second(34 * kSecond) < 2);
  CHECK(rate.per_second(60 * kSecond) == 0);
  rate.add(100, 60 * kSecond, 61 * kSecond);
  CHECK(rate.per_second(61 * kSecond) < 110);
}

}  // namespace
}  // namespace hearth::engine
