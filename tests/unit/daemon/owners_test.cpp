#include "daemon/broker/requests/owners.h"

#include <doctest/doctest.h>

#include "daemon/broker/requests/admission.h"

namespace hearth::broker {
namespace {

constexpr uint32_t kAda = 0x8000'0007U;

std::string bounded(const Owners& owners, uint32_t owner, const std::string& priority) {
  ipc::GenerateRequest request;
  request.priority = priority;
  owners.bound_priority(owner, &request);
  return request.priority;
}

TEST_CASE("owners have names, which their settings stand under") {
  Owners owners;
  CHECK(owners.name(1000) == "uid:1000");
  owners.set_keys({{kAda, "ada"}});
  CHECK(owners.name(kAda) == "key:ada");
  CHECK(owners.find(kAda) == nullptr);
  owners.configure({{"key:ada", {.max_requests = 1}}, {"uid:1000", {.max_requests = 9}}});
  REQUIRE(owners.find(kAda) != nullptr);
  CHECK(owners.find(kAda)->max_requests == 1);
  CHECK(owners.find(1000)->max_requests == 9);
  CHECK(owners.find(1001) == nullptr);
  owners.set_keys({});  // the key is gone; what it owned has no name any more
  CHECK(owners.name(kAda) == "uid:2147483655");
  CHECK(owners.find(kAda) == nullptr);
}

TEST_CASE("a request's class is at most that of its owner") {
  Owners owners;
  owners.configure({{"uid:1", {.priority = "batch"}}, {"uid:2", {.priority = "normal"}}});
  for (const char* asked : {"interactive", "normal", "batch"}) {
    CHECK(bounded(owners, 1, asked) == "batch");
    CHECK(bounded(owners, 3, asked) == asked);
  }
  CHECK(bounded(owners, 2, "interactive") == "normal");
  CHECK(bounded(owners, 2, "normal") == "normal");
  CHECK(bounded(owners, 2, "batch") == "batch");
}

TEST_CASE("an owner's limits replace those of all owners, each by itself") {
  LimitsConfig limits;
  limits.max_requests_per_owner = 2;
  limits.max_queued_bytes_per_owner = 150;
  limits.max_output_tokens_per_owner = 100;
  const Admission admission(limits);
  const OwnerConfig fewer{.max_requests = 1};
  CHECK(admission.admit({.live = 1, .owner_live = 1}, {.bytes = 1}).ok());
  const Result<void> second = admission.admit({.live = 1, .owner_live = 1}, {.bytes = 1}, &fewer);
  REQUIRE_FALSE(second.ok());
  CHECK(second.error().message == "you have 1 live requests, limit 1");
  CHECK_FALSE(admission.admit({}, {.bytes = 151}, &fewer).ok());
  const OwnerConfig more{.max_queued_bytes = 1000, .max_output_tokens = 0};
  CHECK(admission.admit({}, {.bytes = 151, .tokens = 101}, &more).ok());
  CHECK_FALSE(admission.admit({.live = 2, .owner_live = 2}, {.bytes = 1}, &more).ok());
}

}  // namespace
}  // namespace hearth::broker
