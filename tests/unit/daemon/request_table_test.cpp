#include "daemon/broker/requests/request_table.h"

#include <doctest/doctest.h>

namespace hearth::broker {
namespace {

LiveRequest make(uint32_t owner, const std::string& id, size_t bytes = 10) {
  LiveRequest request;
  request.owner = owner;
  request.id = id;
  request.peer = {.door = Door::kIpc, .uid = owner, .number = owner};
  request.bytes = bytes;
  request.request = std::make_shared<const ipc::ComputeRequest>(ipc::GenerateRequest{});
  return request;
}

TEST_CASE("ids are unique among one owner's live requests only") {
  RequestTable table;
  const Result<LiveRequest*> a = table.add(make(1000, "x"));
  REQUIRE(a.ok());
  CHECK_FALSE(table.add(make(1000, "x")).ok());
  const Result<LiveRequest*> b = table.add(make(1001, "x"));
  REQUIRE(b.ok());
  CHECK((*a)->number != (*b)->number);
  CHECK(table.find(1000, "x") == *a);
  CHECK(table.find(1001, "x") == *b);
  CHECK(table.find(1002, "x") == nullptr);
  CHECK(table.find_any_owner("x") == *a);
  table.erase((*a)->number);
  CHECK(table.find(1000, "x") == nullptr);
  CHECK(table.add(make(1000, "x")).ok());
}

TEST_CASE("requests may move to another model before they begin") {
  RequestTable table;
  TokenLogs logs{LimitsConfig{}};
  LiveRequest* a = *table.add(make(1, "a"));
  a->log = &logs.begin(a->number, 1, "a", "m", a->request);
  int32_t uses = 1;
  a->move_to({.name = "n@left", .path = {}, .replica_of = "n"}, ModelUse(&uses));
  CHECK(a->model == "n");
  CHECK(a->replica == "n@left");
  CHECK(a->log->model == "n");
  CHECK(a->untouched());
  a->log->samples.at(0).ids = {1};
  CHECK_FALSE(a->untouched());
  table.erase(a->number);
  CHECK(uses == 0);
}

TEST_CASE("sizes follow the live requests") {
  RequestTable table;
  const uint64_t first = (*table.add(make(1, "a", 100)))->number;
  table.add(make(1, "b", 20)).value();
  table.add(make(2, "a", 3)).value();
  CHECK(table.size() == 3);
  CHECK(table.owner_size(1) == 2);
  CHECK(table.owner_size(2) == 1);
  CHECK(table.owner_size(3) == 0);
  CHECK(table.queued_bytes() == 123);
  table.erase(first);
  table.erase(first);  // twice is harmless
  CHECK(table.size() == 2);
  CHECK(table.owner_size(1) == 1);
  CHECK(table.queued_bytes() == 23);
}

TEST_CASE("numbers come in order of arrival and are never reused") {
  RequestTable table;
  std::vector<uint64_t> want;
  for (int i = 0; i < 5; ++i) {
    want.push_back((*table.add(make(1, std::to_string(i))))->number);
  }
  CHECK(table.numbers([](const LiveRequest&) { return true; }) == want);
  table.erase(want[4]);
  CHECK((*table.add(make(1, "again")))->number > want[4]);
}

}  // namespace
}  // namespace hearth::broker
