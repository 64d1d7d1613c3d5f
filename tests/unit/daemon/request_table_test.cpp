#include "daemon/broker/requests/request_table.h"

#include <doctest/doctest.h>

#include "ipc/wire/frames.h"

namespace hearth::broker {
namespace {

LiveRequest make(uint32_t owner, const std::string& id, size_t bytes = 10, int n = 1) {
  LiveRequest request;
  request.owner = owner;
  request.id = id;
  request.peer = {.door = Door::kIpc, .uid = owner, .number = owner};
  request.bytes = bytes;
  request.request = std::make_shared<const ipc::ClientRequest>(ipc::GenerateRequest{});
  request.samples.resize(static_cast<size_t>(n));
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

TEST_CASE("requests are counted by model, and may move to another before they begin") {
  RequestTable table;
  LiveRequest* a = *table.add(make(1, "a"));
  LiveRequest* b = *table.add(make(1, "b"));
  table.move_to_model(*a, "m");
  table.move_to_model(*b, "m");
  CHECK(table.model_size("m") == 2);
  CHECK(a->untouched());
  a->samples[0].ids = {1};
  CHECK_FALSE(a->untouched());
  table.move_to_model(*b, "n");
  CHECK(table.model_size("m") == 1);
  table.erase(a->number);
  CHECK(table.model_size("m") == 0);
  CHECK(table.model_size("n") == 1);
}

TEST_CASE("sizes follow what is live") {
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

ipc::DeltaHeader header(uint32_t sample, uint32_t first, uint32_t count) {
  return {.sample = sample, .first_index = first, .num_tokens = count, .num_parts = 0};
}

TEST_CASE("deltas extend the log of their sample, from which a request is resumed") {
  LiveRequest request = make(1, "a", 1, 2);
  CHECK(request.resume().empty());
  CHECK(
      accept_delta(&request, header(0, 0, 2), ipc::encode_ids(std::vector<int32_t>{5, 6})).value());
  CHECK(accept_delta(&request, header(1, 0, 1), ipc::encode_ids(std::vector<int32_t>{7})).value());
  CHECK(accept_delta(&request, header(0, 2, 1), ipc::encode_ids(std::vector<int32_t>{8})).value());
  CHECK(request.resume() == std::vector<std::vector<int32_t>>{{5, 6, 8}, {7}});
  CHECK(request.output_tokens() == 4);
}

TEST_CASE("a hole, an overlap, a wrong count or sample is an error and changes nothing") {
  LiveRequest request = make(1, "a");
  const std::string one = ipc::encode_ids(std::vector<int32_t>{5});
  CHECK_FALSE(accept_delta(&request, header(1, 0, 1), one).ok());
  CHECK_FALSE(accept_delta(&request, header(0, 1, 1), one).ok());
  CHECK_FALSE(accept_delta(&request, header(0, 0, 2), one).ok());
  CHECK_FALSE(accept_delta(&request, header(0, 0, 0xFFFFFFFF), one).ok());
  CHECK(request.output_tokens() == 0);
  CHECK(accept_delta(&request, header(0, 0, 1), one).value());
  CHECK_FALSE(accept_delta(&request, header(0, 0, 1), one).ok());
  CHECK(request.output_tokens() == 1);
}

TEST_CASE("the end of a text passes once; a resumed worker's second one is dropped") {
  LiveRequest request = make(1, "a");
  CHECK(accept_delta(&request, header(0, 0, 1), ipc::encode_ids(std::vector<int32_t>{5})).value());
  CHECK(accept_delta(&request, header(0, 1, 0), "").value());
  CHECK_FALSE(accept_delta(&request, header(0, 1, 0), "").value());
}

}  // namespace
}  // namespace hearth::broker
