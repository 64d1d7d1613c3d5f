#include "daemon/broker/transport/output_buffer.h"

#include <doctest/doctest.h>

#include <map>

#include "ipc/wire/frames.h"

namespace hearth::broker {
namespace {

Outgoing delta(uint64_t number, uint32_t sample, uint32_t first, const std::string& text,
               const std::vector<int32_t>& ids, const std::string& logprobs = "") {
  Outgoing out;
  out.number = number;
  out.request_id = "r";
  out.is_delta = true;
  out.sample = sample;
  out.payload = ipc::encode_delta_payload(
      {.sample = sample, .first_index = first, .num_tokens = static_cast<uint32_t>(ids.size())},
      text);
  out.ids = ipc::encode_ids(ids);
  out.logprobs = logprobs;
  return out;
}

Outgoing event(uint64_t number, const std::string& json) {
  Outgoing out;
  out.number = number;
  out.request_id = "r";
  out.payload = json;
  return out;
}

// A client whose connection takes `room` messages until it gets more room.
struct FakeClient {
  int room = 0;
  bool gone = false;
  std::vector<Outgoing> got;
};

const PeerId kA{.door = Door::kIpc, .uid = 1, .number = 1};
const PeerId kB{.door = Door::kIpc, .uid = 2, .number = 2};

struct Fixture {
  std::map<PeerId, FakeClient> clients;
  OutputBuffer buffer;
  explicit Fixture(size_t bytes_max = 1 << 20)
      : buffer(bytes_max, [this](const PeerId& peer, const OutgoingView& outgoing) {
          FakeClient& client = clients[peer];
          if (client.gone) return ipc::SendOutcome::kUnreachable;
          if (client.room == 0) return ipc::SendOutcome::kWouldBlock;
          --client.room;
          client.got.emplace_back(outgoing);
          return ipc::SendOutcome::kSent;
        }) {}
};

ipc::DeltaPayload payload_of(const Outgoing& out) {
  return ipc::decode_delta_payload(out.payload).value();
}

TEST_CASE("deltas with parts merge with each other and with plain ones, in order") {
  using ipc::DeltaChannel;
  using ipc::DeltaPart;
  Outgoing parted = delta(1, 0, 1, "", {2});
  parted.payload = ipc::encode_delta_payload(
      {0, 1, 1, 0}, std::vector<DeltaPart>{{DeltaChannel::kReasoning, "b"}});
  Outgoing first = delta(1, 0, 0, "a", {1});
  merge_deltas(&first, parted);
  merge_deltas(&first, parted);
  merge_deltas(&first, delta(1, 0, 3, "c", {4}));
  const ipc::DeltaPayload merged = payload_of(first);
  CHECK(merged.header == ipc::DeltaHeader{0, 0, 4, 4});
  CHECK(ipc::decode_parts(merged).value() == std::vector<DeltaPart>{{DeltaChannel::kText, "a"},
                                                                    {DeltaChannel::kReasoning, "b"},
                                                                    {DeltaChannel::kReasoning, "b"},
                                                                    {DeltaChannel::kText, "c"}});
}

TEST_CASE("with room messages pass directly") {
  Fixture f;
  f.clients[kA].room = 10;
  CHECK(f.buffer.push(kA, delta(1, 0, 0, "x", {1}), false) == OutputBuffer::Outcome::kSent);
  CHECK(f.buffer.push(kA, event(1, "{}"), false) == OutputBuffer::Outcome::kSent);
  CHECK(f.clients[kA].got.size() == 2);
  CHECK_FALSE(f.buffer.has_backlog());
}

TEST_CASE("deltas of a slow client merge per request and sample, and lose nothing") {
  Fixture f;
  uint32_t first[2] = {0, 0};
  std::string sent[2];
  for (int i = 0; i < 200; ++i) {
    const uint32_t sample = static_cast<uint32_t>(i % 2);
    const std::string text(1, static_cast<char>('a' + i % 26));
    sent[sample] += text;
    CHECK(f.buffer.push(kA, delta(7, sample, first[sample]++, text, {i}), false) ==
          OutputBuffer::Outcome::kQueued);
  }
  CHECK(f.buffer.backlog_messages(kA) == 2);
  CHECK(f.buffer.num_merged() == 198);
  f.clients[kA].room = 10;
  CHECK(f.buffer.retry().empty());
  CHECK_FALSE(f.buffer.has_backlog());
  CHECK(f.buffer.total_bytes() == 0);
  REQUIRE(f.clients[kA].got.size() == 2);
  for (uint32_t sample : {0u, 1u}) {
    const Outgoing& out = f.clients[kA].got[sample];
    const ipc::DeltaPayload payload = payload_of(out);
    CHECK(payload.header.sample == sample);
    CHECK(payload.header.first_index == 0);
    CHECK(payload.header.num_tokens == 100);
    CHECK(payload.text == sent[sample]);
    const std::vector<int32_t> ids = ipc::decode_ids(out.ids).value();
    REQUIRE(ids.size() == 100);
    for (size_t i = 0; i < 100; ++i) CHECK(ids[i] == static_cast<int32_t>(2 * i + sample));
  }
}

TEST_CASE("a delta never overtakes an event of its request, and requests keep their order") {
  Fixture f;
  f.buffer.push(kA, delta(1, 0, 0, "x", {1}), false);
  f.buffer.push(kA, event(1, "sample_done"), false);
  f.buffer.push(kA, delta(1, 1, 0, "y", {2}), false);
  f.buffer.push(kA, event(2, "started"), false);
  f.buffer.push(kA, delta(1, 1, 1, "z", {3}), false);  // merges over the other request's event
  f.clients[kA].room = 10;
  f.buffer.retry();
  const std::vector<Outgoing>& got = f.clients[kA].got;
  REQUIRE(got.size() == 4);
  CHECK(payload_of(got[0]).text == "x");
  CHECK(got[1].payload == "sample_done");
  CHECK(payload_of(got[2]).text == "yz");
  CHECK(got[3].payload == "started");
}

TEST_CASE("a delta that was sent is not merged into") {
  Fixture f;
  f.buffer.push(kA, delta(1, 0, 0, "x", {1}), false);
  f.buffer.push(kA, event(9, "{}"), false);
  f.clients[kA].room = 1;
  f.buffer.retry();
  f.buffer.push(kA, delta(1, 0, 1, "y", {2}), false);
  f.clients[kA].room = 10;
  f.buffer.retry();
  const std::vector<Outgoing>& got = f.clients[kA].got;
  REQUIRE(got.size() == 3);
  CHECK(payload_of(got[0]).text == "x");
  CHECK(got[1].payload == "{}");
  CHECK(payload_of(got[2]).text == "y");
  CHECK(payload_of(got[2]).header.first_index == 1);
}

TEST_CASE("logprobs of merged deltas stay one array") {
  Outgoing first = delta(1, 0, 0, "x", {1}, "[[-1.0,[]]]");
  merge_deltas(&first, delta(1, 0, 1, "y", {2, 3}, "[[-2.0,[]],[-3.0,[]]]"));
  CHECK(first.logprobs == "[[-1.0,[]],[-2.0,[]],[-3.0,[]]]");
  merge_deltas(&first, delta(1, 0, 3, "tail", {}));
  CHECK(first.logprobs == "[[-1.0,[]],[-2.0,[]],[-3.0,[]]]");
  CHECK(payload_of(first).header.num_tokens == 3);
  CHECK(payload_of(first).text == "xytail");
  Outgoing none = delta(1, 0, 0, "", {});
  merge_deltas(&none, delta(1, 0, 0, "y", {2}, "[[-2.0,[]]]"));
  CHECK(none.logprobs == "[[-2.0,[]]]");
}

TEST_CASE("the bound refuses all but what must fit, and counts every connection separately") {
  Fixture f(200);
  const std::string big(150, 'x');
  CHECK(f.buffer.push(kA, delta(1, 0, 0, big, {1}), false) == OutputBuffer::Outcome::kQueued);
  CHECK(f.buffer.push(kA, delta(1, 0, 1, big, {2}), false) == OutputBuffer::Outcome::kOverflow);
  CHECK(f.buffer.push(kA, event(1, big), false) == OutputBuffer::Outcome::kOverflow);
  CHECK(f.buffer.push(kA, event(1, "error"), true) == OutputBuffer::Outcome::kQueued);
  CHECK(f.buffer.push(kB, delta(2, 0, 0, big, {1}), false) == OutputBuffer::Outcome::kQueued);
  f.clients[kA].room = 10;
  f.buffer.retry();
  REQUIRE(f.clients[kA].got.size() == 2);
  CHECK(f.clients[kA].got[1].payload == "error");
  CHECK(f.buffer.backlog_bytes(kA) == 0);
  CHECK(f.buffer.backlog_bytes(kB) > 150);
}

TEST_CASE("one connection is tried separately, and drops are reported once per stall") {
  Fixture f(100);
  CHECK_FALSE(f.buffer.note_dropped(kA));  // nothing stalls
  f.buffer.push(kA, event(1, "x"), false);
  f.buffer.push(kB, event(2, "y"), false);
  CHECK(f.buffer.note_dropped(kA));
  CHECK_FALSE(f.buffer.note_dropped(kA));
  CHECK(f.buffer.note_dropped(kB));
  CHECK(f.buffer.retry(kA));  // no room yet
  CHECK(f.buffer.backlog_messages(kA) == 1);
  f.clients[kA].room = f.clients[kB].room = 1;
  CHECK(f.buffer.retry(kA));
  CHECK(f.buffer.backlog_messages(kA) == 0);
  CHECK(f.buffer.backlog_messages(kB) == 1);
  CHECK(f.buffer.retry(PeerId{}));
  f.buffer.push(kA, event(1, "z"), false);
  CHECK(f.buffer.note_dropped(kA));  // another stall
  f.clients[kA].gone = true;
  CHECK_FALSE(f.buffer.retry(kA));
  CHECK(f.buffer.retry(kA));  // it has no backlog any more
}

TEST_CASE("a closed connection loses its backlog and is named once") {
  Fixture f;
  f.buffer.push(kA, event(1, "x"), false);
  f.buffer.push(kB, event(2, "y"), false);
  f.clients[kA].gone = true;
  CHECK(f.buffer.retry() == std::vector<PeerId>{kA});
  CHECK(f.buffer.retry().empty());
  CHECK(f.buffer.has_backlog());  // b's
  CHECK(f.buffer.push(kA, event(1, "z"), false) == OutputBuffer::Outcome::kGone);
}

TEST_CASE("an answer above the bound is refused even with an empty backlog") {
  Fixture f(100);
  CHECK(f.buffer.push(kA, event(1, std::string(200, 'x')), false) ==
        OutputBuffer::Outcome::kOverflow);
  CHECK_FALSE(f.buffer.has_backlog());
}

TEST_CASE("no work is taken from a connection at half of its bound, or of its user's") {
  Fixture f(1000);
  const auto connection = [](uint64_t number) {
    return PeerId{.door = Door::kIpc, .uid = 1, .number = number};
  };
  f.buffer.push(connection(1), event(1, std::string(490, 'x')), false);
  CHECK_FALSE(f.buffer.is_behind(connection(1)));
  f.buffer.push(connection(1), event(2, std::string(100, 'x')), false);
  CHECK(f.buffer.is_behind(connection(1)));
  // Eight times 1000 bytes for all; none of these alone is at half of 1000.
  for (uint64_t i = 2; i <= 8; ++i) {
    f.buffer.push(connection(i), event(i, std::string(480, 'x')), false);
    CHECK_FALSE(f.buffer.is_behind(connection(i)));
  }
  f.buffer.push(connection(9), event(9, std::string(50, 'x')), false);
  CHECK(f.buffer.user_bytes(1) > 4000);
  for (uint64_t i = 1; i <= 9; ++i) CHECK(f.buffer.is_behind(connection(i)));
  // One that reads, and another user's.
  CHECK_FALSE(f.buffer.is_behind(connection(10)));
  f.buffer.push(kB, event(11, std::string(100, 'x')), false);
  CHECK_FALSE(f.buffer.is_behind(kB));
}

TEST_CASE("all connections of a user have one bound together, at no cost to other users") {
  Fixture f(100);
  const std::string big(80, 'x');
  int queued = 0;
  for (uint64_t number = 1; number <= 50; ++number) {
    const PeerId peer{.door = Door::kIpc, .uid = 7, .number = 100 + number};
    queued += f.buffer.push(peer, event(number, big), false) == OutputBuffer::Outcome::kQueued;
  }
  CHECK(queued < 12);
  CHECK(f.buffer.user_bytes(7) <= 100 * OutputBuffer::kConnectionsOfUser);
  CHECK(f.buffer.push(kB, event(1, big), false) == OutputBuffer::Outcome::kQueued);
  f.buffer.drop({.door = Door::kIpc, .uid = 7, .number = 101});
  CHECK(f.buffer.push(kA, event(1, big), false) == OutputBuffer::Outcome::kQueued);
  const size_t before = f.buffer.user_bytes(7);
  CHECK(before < 100 * OutputBuffer::kConnectionsOfUser);
}

}  // namespace
}  // namespace hearth::broker
