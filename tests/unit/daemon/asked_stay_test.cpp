#include "daemon/broker/residency/asked_stay.h"

#include <doctest/doctest.h>

namespace hearth::broker {
namespace {

constexpr int64_t kConfigured = 1000, kMost = 5000;

TEST_CASE("a longer stay is granted to any user, within a bound") {
  for (const bool shared : {false, true}) {
    AskedStay stay;
    if (shared) stay.note_user(1);
    CHECK(stay.granted_ms(kConfigured, kMost) == kConfigured);
    CHECK_FALSE(stay.denied(kConfigured, kMost));
    stay.ask(2, 3000);
    CHECK(stay.shared() == shared);
    CHECK(stay.granted_ms(kConfigured, kMost) == 3000);
    stay.ask(2, 6000);
    CHECK(stay.granted_ms(kConfigured, kMost) == kMost);
    stay.ask(2, -1);
    CHECK(stay.granted_ms(kConfigured, kMost) == kMost);
    CHECK_FALSE(stay.denied(kConfigured, kMost));
    // A bound below what is configured takes nothing from it.
    CHECK(stay.granted_ms(kConfigured, 0) == kConfigured);
    CHECK(stay.denied(kConfigured, 0));
    // Forever as configured is as long as any wish.
    CHECK(stay.granted_ms(0, kMost) == 0);
    CHECK_FALSE(stay.denied(0, kMost));
  }
}

TEST_CASE("a shorter stay is granted while no other user has used the model") {
  AskedStay stay;
  stay.note_user(1);
  for (const int64_t configured : {kConfigured, int64_t{0}}) {
    CAPTURE(configured);
    stay.ask(1, 500);
    CHECK(stay.granted_ms(configured, kMost) == 500);
    stay.ask(1, 0);
    CHECK(stay.granted_ms(configured, kMost) == 1);  // 0 means never
    CHECK_FALSE(stay.denied(configured, kMost));
  }
  stay.ask(1, kConfigured);
  CHECK_FALSE(stay.denied(kConfigured, kMost));
  AskedStay other = stay;
  stay.ask(1, 0);
  stay.note_user(2);  // another user comes after the wish
  other.note_administrator();
  other.ask(1, 0);
  for (const AskedStay& each : {stay, other}) {
    CHECK(each.shared());
    CHECK(each.granted_ms(kConfigured, kMost) == kConfigured);
    CHECK(each.granted_ms(0, kMost) == 0);
    CHECK(each.denied(kConfigured, kMost));
    CHECK(each.denied(0, kMost));
  }
}

}  // namespace
}  // namespace hearth::broker
