#include "engine/scheduling/owner_shares.h"

#include <doctest/doctest.h>

#include <string>

namespace hearth::engine {
namespace {

TEST_CASE("two busy owners take turns") {
  OwnerShares shares(1000);
  Owner* a = shares.enter("a");
  Owner* b = shares.enter("b");
  int32_t served_a = 0;
  int32_t served_b = 0;
  for (int i = 0; i < 1000; ++i) {
    const bool a_first = shares.position(*a) <= shares.position(*b);
    shares.serve(a_first ? *a : *b, a_first ? 30 : 10);  // requests of different size
    (a_first ? served_a : served_b) += a_first ? 30 : 10;
  }
  CHECK(served_a == doctest::Approx(served_b).epsilon(0.05));
}

TEST_CASE("a quiet owner goes first, but only until it has caught up with the recent past") {
  OwnerShares shares(1000);
  Owner* a = shares.enter("a");
  for (int i = 0; i < 10'000; ++i) shares.serve(*a, 10);
  Owner* b = shares.enter("b");
  int32_t served_b = 0;
  while (shares.position(*b) < shares.position(*a)) {
    shares.serve(*b, 10);
    served_b += 10;
  }
  CHECK(served_b > 500);
  CHECK(served_b < 1000);  // not the 100 000 that a had
}

TEST_CASE("leaving and returning gains nothing, and old service is forgotten") {
  OwnerShares shares(1000);
  Owner* a = shares.enter("a");
  shares.enter("b");
  shares.serve(*a, 800);
  const double before = shares.position(*a);
  CHECK(before > 0);
  shares.leave("a");
  a = shares.enter("a");
  CHECK(shares.position(*a) == before);
  CHECK(shares.num_live() == 2);
  shares.leave("a");
  CHECK(shares.num_known() == 2);
  CHECK(shares.num_live() == 1);
  Owner* c = shares.enter("c");
  for (int i = 0; i < 100; ++i) shares.serve(*c, 100);
  shares.leave("c");
  CHECK(shares.num_known() == 2);  // a is forgotten, c not yet
  CHECK(shares.position(*shares.enter("a")) == 0);
}

TEST_CASE("a waiting owner is not passed by newcomers for ever") {
  OwnerShares shares(1000);
  Owner* a = shares.enter("a");
  shares.serve(*a, 900);
  int passed = 0;
  // Each newcomer has used nothing; equal positions go by arrival, so by then a is first.
  while (shares.position(*a) > 0) {
    const std::string name = "new" + std::to_string(passed++);
    shares.serve(*shares.enter(name), 100);
    shares.leave(name);
    REQUIRE(passed < 100);
  }
  CHECK(passed > 5);
  CHECK(shares.num_known() < 60);
}

}  // namespace
}  // namespace hearth::engine
