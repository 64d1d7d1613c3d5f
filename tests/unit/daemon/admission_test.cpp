#include "daemon/broker/requests/admission.h"

#include <doctest/doctest.h>

namespace hearth::broker {
namespace {

LimitsConfig limits() {
  LimitsConfig out;
  out.max_message_bytes = 100;
  out.max_requests = 4;
  out.max_requests_per_owner = 2;
  out.max_queued_bytes = 250;
  out.max_queued_bytes_per_owner = 150;
  out.max_output_tokens_per_owner = 1000;
  return out;
}

TEST_CASE("each bound refuses with its code and its numbers") {
  const Admission admission(limits());
  CHECK(admission.admit({.live = 3, .owner_live = 1, .queued_bytes = 150}, {.bytes = 100}).ok());

  const Result<void> large = admission.admit({}, {.bytes = 101});
  REQUIRE_FALSE(large.ok());
  CHECK(large.error().code == ErrorCode::kTooLarge);
  CHECK(large.error().message == "message of 101 bytes, limit 100");

  const Result<void> full = admission.admit({.live = 4}, {.bytes = 1});
  REQUIRE_FALSE(full.ok());
  CHECK(full.error().code == ErrorCode::kBusy);
  CHECK(full.error().message == "4 requests are live, limit 4");

  const Result<void> greedy = admission.admit({.live = 2, .owner_live = 2}, {.bytes = 1});
  REQUIRE_FALSE(greedy.ok());
  CHECK(greedy.error().code == ErrorCode::kBusy);

  const Result<void> heavy = admission.admit({.queued_bytes = 200}, {.bytes = 51});
  REQUIRE_FALSE(heavy.ok());
  CHECK(heavy.error().code == ErrorCode::kBusy);
}

TEST_CASE("one owner's bytes and tokens are bounded, with a number for each") {
  Admission admission(limits());
  const Result<void> heavy = admission.admit({.owner_bytes = 100}, {.bytes = 51});
  REQUIRE_FALSE(heavy.ok());
  CHECK(heavy.error().code == ErrorCode::kBusy);
  CHECK(heavy.error().message == "your live requests hold 100 bytes, limit 150");

  CHECK(admission.admit({.owner_tokens = 600}, {.bytes = 1, .tokens = 400}).ok());
  const Result<void> many = admission.admit({.owner_tokens = 600}, {.bytes = 1, .tokens = 401});
  REQUIRE_FALSE(many.ok());
  CHECK(many.error().code == ErrorCode::kBusy);
  CHECK(many.error().field == "max_tokens");
  const Result<void> never = admission.admit({}, {.bytes = 1, .tokens = 1001});
  REQUIRE_FALSE(never.ok());
  CHECK(never.error().code == ErrorCode::kTooLarge);

  LimitsConfig unbounded = limits();
  unbounded.max_output_tokens_per_owner = 0;
  admission.set_limits(unbounded);
  CHECK(admission.admit({.owner_tokens = 600}, {.bytes = 1, .tokens = 1 << 30}).ok());
}

TEST_CASE("draining refuses everything") {
  Admission admission(limits());
  admission.stop_admitting();
  const Result<void> refused = admission.admit({}, {.bytes = 1});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == ErrorCode::kUnavailable);
}

TEST_CASE("the retry hint follows how long requests take and how many end meanwhile") {
  Admission admission(limits());
  for (int i = 0; i < 200; ++i) admission.note_duration_ms(8000);
  const int64_t alone = admission.retry_ms(1);
  CHECK(alone > 7000);
  CHECK(alone <= 8000);
  CHECK(admission.retry_ms(4) < alone / 3);
  CHECK(admission.retry_ms(100000) == 50);
  for (int i = 0; i < 200; ++i) admission.note_duration_ms(1e9);
  CHECK(admission.retry_ms(1) == 10000);
}

}  // namespace
}  // namespace hearth::broker
