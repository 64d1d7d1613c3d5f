// KV events over the real sockets, to subscribers on libzmq.

#include "daemon/broker/observe/kv_publisher.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "daemon/http/peer.h"
#include "tests/kv_subscriber.h"
#include "tests/temp_dir.h"

namespace hearth::broker {
namespace {

using Json = nlohmann::json;
using tests::KvMessage;
using tests::KvReplayClient;
using tests::KvSubscriber;

/// An array of events, of about so many bytes.
std::string events_of(int number, size_t bytes = 0) {
  std::string out;
  Json::to_msgpack(
      Json::array({{{"type", "BlockRemoved"}, {"number", number}, {"x", std::string(bytes, 'x')}}}),
      out);
  return out;
}

struct Rig {
  const tests::TempDir temp;
  boost::asio::io_context io;
  FakeClock clock;
  Acceptor acceptor{io, clock};
  LoopShares shares{io};
  std::unique_ptr<KvPublisher> publisher;

  /// `admitted`: whether this process's user may subscribe.
  explicit Rig(size_t buffer_bytes = 1 << 20, bool admitted = true) {
    const TcpAddress any_port{
        .name = "any", .address = "127.0.0.1", .port = 0, .name_user = http::tcp_peer_uid};
    publisher = KvPublisher::open(io, clock, acceptor, shares,
                                  {.pod = "pod",
                                   .buffer_bytes = buffer_bytes,
                                   .events_socket = temp.path() / "kv.sock",
                                   .replay_socket = temp.path() / "replay.sock",
                                   .events_address = any_port,
                                   .replay_address = any_port,

                                   .now_s = [] { return 1.5; },
                                   .may_subscribe =
                                       [admitted](const ipc::PeerCredentials& peer) {
                                         return admitted && peer.uid == ::geteuid();
                                       }})
                    .value();
  }
  std::string events() const { return "ipc://" + (temp.path() / "kv.sock").string(); }
  std::string replay() const { return "ipc://" + (temp.path() / "replay.sock").string(); }
  void turn() {
    io.restart();
    io.run_for(std::chrono::milliseconds(10));
  }
  /// Runs the loop until `done` returns true; false after a minute, which only a failure takes.
  bool until(const std::function<bool()>& done) {
    for (int i = 0; i < 6000; ++i) {
      if (done()) return true;
      turn();
    }
    return false;
  }
  /// Publishes until the subscriber gets something: then its subscription is known here.
  void join(KvSubscriber& subscriber, const std::string& model) {
    REQUIRE(until([&] {
      publisher->on_kv_events(model, 1, events_of(-1));
      turn();
      return !subscriber.read(0).empty();
    }));
    // What was under way arrives.
    for (int i = 0; i < 20; ++i) {
      turn();
      subscriber.read(0);
    }
  }
};

TEST_CASE("a payload, byte for byte") {
  using namespace std::string_literals;
  CHECK(kv_payload(1.5, "\x90") == "\x93\xcb\x3f\xf8\0\0\0\0\0\0\x90\0"s);
  const Json cleared = Json::from_msgpack(kv_payload(2, kv_cleared()));
  CHECK(cleared == Json::parse(R"([2.0, [{"type": "AllBlocksCleared"}], 0])"));
}

TEST_CASE("a subscriber gets topic, number and payload, over a Unix socket and over TCP") {
  Rig rig;
  const auto check = [&](const std::string& endpoint) {
    KvSubscriber subscriber(endpoint);
    rig.join(subscriber, "tales");
    const uint64_t first = rig.publisher->num_published();
    rig.publisher->on_kv_events("tales", 1, events_of(7));
    std::vector<KvMessage> met;
    REQUIRE(rig.until([&] {
      for (KvMessage& each : subscriber.read(0)) met.push_back(std::move(each));
      return !met.empty();
    }));
    CHECK(met[0] == KvMessage{"kv@pod@tales", first, kv_payload(1.5, events_of(7))});
  };
  check(rig.events());
  REQUIRE(rig.publisher->events_port() != 0);
  check("tcp://127.0.0.1:" + std::to_string(rig.publisher->events_port()));
}

TEST_CASE("subscriptions are prefixes of topics") {
  Rig rig;
  KvSubscriber one(rig.events(), "kv@pod@a");
  KvSubscriber other(rig.events(), "kv@elsewhere");
  rig.join(one, "a");
  rig.publisher->on_kv_events("b", 1, events_of(1));
  rig.publisher->on_kv_events("a", 1, events_of(2));
  std::vector<KvMessage> met;
  REQUIRE(rig.until([&] {
    for (KvMessage& each : one.read(0)) met.push_back(std::move(each));
    return !met.empty();
  }));
  for (const KvMessage& each : met) CHECK(each.topic == "kv@pod@a");
  CHECK(other.read(0).empty());
}

TEST_CASE("topics of a connection are bounded, in number and in bytes") {
  Rig rig;
  KvSubscriber subscriber(rig.events(), "kv@pod@first");
  rig.join(subscriber, "first");
  // A connection's subscriptions arrive in their order.
  subscriber.subscribe("kv@pod@" + std::string(250, 'k'));
  for (int i = 0; i < 70; ++i) subscriber.subscribe(fmt::format("kv@pod@{}!", i));
  std::set<std::string> met;
  for (int i = 0; i < 100; ++i) {
    for (const char* model : {"20!", "69!"}) rig.publisher->on_kv_events(model, 1, events_of(i));
    rig.publisher->on_kv_events(std::string(250, 'k'), 1, events_of(i));
    rig.turn();
    for (const KvMessage& each : subscriber.read(0)) met.insert(each.topic);
  }
  CHECK(fmt::format("{}", fmt::join(met, " ")) == "kv@pod@20!");
}

TEST_CASE(
    "a new worker and the end of one clear what subscribers know; an older one is not heard") {
  Rig rig;
  KvReplayClient client(rig.replay());
  rig.publisher->on_kv_events("m", 3, events_of(1));
  rig.publisher->on_kv_events("m", 3, events_of(2));
  rig.publisher->on_kv_events("m", 5, events_of(3));  // its successor
  rig.publisher->on_kv_events("m", 3, events_of(4));  // draining
  rig.publisher->on_kv_gone("m", 3);
  rig.publisher->on_kv_gone("n", 4);  // never had events
  rig.publisher->on_kv_gone("m", 5);
  rig.publisher->on_kv_gone("m", 5);
  client.ask(0);
  std::vector<KvMessage> met;
  REQUIRE(rig.until([&] { return client.read(met); }));
  std::vector<std::string> payloads;
  for (const KvMessage& each : met) payloads.push_back(each.payload);
  const std::string cleared = kv_payload(1.5, kv_cleared());
  CHECK(payloads == std::vector<std::string>{cleared, kv_payload(1.5, events_of(1)),
                                             kv_payload(1.5, events_of(2)), cleared,
                                             kv_payload(1.5, events_of(3)), cleared});
}

TEST_CASE("a subscriber that pauses within the buffer has everything after a replay") {
  Rig rig(8 << 20);
  KvSubscriber subscriber(rig.events(), "kv@", 1);
  rig.join(subscriber, "m");
  KvReplayClient client("tcp://127.0.0.1:" + std::to_string(rig.publisher->replay_port()));
  const uint64_t first = rig.publisher->num_published();
  constexpr int kMessages = 3000;
  for (int i = 0; i < kMessages; ++i) {
    rig.publisher->on_kv_events("m", 1, events_of(i, 2000));
    if (i % 100 == 0) rig.turn();
  }
  CHECK(rig.publisher->num_lost() > 0);  // it has not read
  std::vector<KvMessage> met;
  REQUIRE(rig.until([&] {
    for (KvMessage& each : subscriber.read(0)) met.push_back(std::move(each));
    return !met.empty();
  }));
  CHECK(met.size() < kMessages);
  // It asks again from the first one on, and the replay is longer than a connection may hold.
  client.ask(first);
  std::vector<KvMessage> replayed;
  REQUIRE(rig.until([&] { return client.read(replayed); }));
  REQUIRE(replayed.size() == kMessages);
  for (int i = 0; i < kMessages; ++i) {
    REQUIRE(replayed[i].sequence == first + static_cast<uint64_t>(i));
    REQUIRE(replayed[i].payload == kv_payload(1.5, events_of(i, 2000)));
  }
  // One connection may ask again.
  replayed.clear();
  client.ask(first + kMessages - 1);
  REQUIRE(rig.until([&] { return client.read(replayed); }));
  CHECK(replayed.size() == 1);
  replayed.clear();
  client.ask(UINT64_MAX);
  REQUIRE(rig.until([&] { return client.read(replayed); }));
  CHECK(replayed.empty());
}

TEST_CASE("the buffer keeps the last messages within its bytes") {
  Rig rig(100'000);
  KvReplayClient client(rig.replay());
  for (int i = 0; i < 500; ++i) rig.publisher->on_kv_events("m", 1, events_of(i, 1000));
  client.ask(0);
  std::vector<KvMessage> met;
  REQUIRE(rig.until([&] { return client.read(met); }));
  CHECK(met.size() > 80);
  CHECK(met.size() < 100);
  CHECK(met.back().sequence == rig.publisher->num_published() - 1);
  for (size_t i = 1; i < met.size(); ++i) CHECK(met[i].sequence == met[i - 1].sequence + 1);
  // A message larger than the buffer leaves it empty.
  rig.publisher->on_kv_events("m", 1, events_of(0, 200'000));
  met.clear();
  client.ask(0);
  REQUIRE(rig.until([&] { return client.read(met); }));
  CHECK(met.empty());
}

TEST_CASE("a user that may not subscribe is sent nothing") {
  Rig rig(1 << 20, false);
  KvSubscriber subscriber(rig.events());
  KvReplayClient client(rig.replay());
  client.ask(0);
  std::vector<KvMessage> met;
  for (int i = 0; i < 30; ++i) {
    rig.publisher->on_kv_events("m", 1, events_of(i));
    rig.turn();
    CHECK(subscriber.read(0).empty());
    CHECK_FALSE(client.read(met));
  }
  CHECK(met.empty());
}

TEST_CASE("requests for a replay that are none are ignored, and the next one is answered") {
  Rig rig;
  rig.publisher->on_kv_events("m", 1, events_of(1));
  KvReplayClient client(rig.replay());
  client.send("");
  client.send("1234567");
  client.send("123456789");
  client.send(std::string(500, 'x'));
  client.ask(1);
  std::vector<KvMessage> met;
  REQUIRE(rig.until([&] { return client.read(met); }));
  CHECK(met.size() == 1);
}

}  // namespace
}  // namespace hearth::broker
