// events.sock over the real socket: what each listener receives, and that nothing is computed
// without listeners.

#include "daemon/broker/observe/event_hub.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>

#include "ipc/client/event_stream.h"
#include "ipc/files/paths.h"
#include "tests/temp_dir.h"

namespace hearth::broker {
namespace {

struct Rig {
  const tests::TempDir temp;
  boost::asio::io_context io;
  FakeClock clock;
  Acceptor acceptor{io, clock};
  LoopShares shares{io};
  Rights rights;
  int asked = 0;
  std::vector<bool> watched;
  std::vector<HubRequest> live;
  std::unique_ptr<EventHub> hub;

  /// `admin`: whether this process's user is an administrator.
  explicit Rig(bool admin) {
    rights = admin ? Rights::create("", ::geteuid()).value() : Rights();
    HubSources sources;
    sources.stats = [this] { return ++asked, std::string("{}"); };
    sources.models = [this] { return ++asked, std::string("{}"); };
    sources.requests = [this] { return ++asked, live; };
    sources.watch_workers = [this](bool on) { watched.push_back(on); };
    hub = EventHub::open(io, clock, acceptor, shares, rights, ipc::events_socket(temp.path()),
                         sources)
              .value();
  }
  /// Runs the loop until `done` returns true; false after a minute, which only a failure takes.
  bool until(const std::function<bool()>& done) {
    for (int i = 0; i < 6000; ++i) {
      if (done()) return true;
      io.restart();
      io.run_for(std::chrono::milliseconds(10));
    }
    return false;
  }
};

HubRequest request(uint64_t number, uint32_t owner) {
  HubRequest out;
  out.owner = owner;
  out.row.number = number;
  out.row.id = "r" + std::to_string(number);
  return out;
}

ipc::WatchUpdate sample_update() {
  ipc::WatchUpdate update;
  update.sequence = 1;
  ipc::WatchedStep step;
  step.prefills = {{1, 10}, {2, 20}};
  update.steps.push_back(step);
  update.pools.push_back({.group = 0,
                          .num_blocks = 8,
                          .full = true,
                          .runs = {{.first = 0,
                                    .count = 2,
                                    .state = ipc::WatchedBlock::kUsed,
                                    .refs = 1,
                                    .request = 2,
                                    .position = 0,
                                    .on_disk = false}}});
  update.has_prefixes = true;
  update.prefixes.resize(3);
  ipc::WatchedRequest row;
  row.number = 1;
  row.cached_tokens = 48;
  update.requests.push_back(row);
  return update;
}

TEST_CASE("without listeners nothing is asked or sent, and workers do not report") {
  Rig rig(true);
  for (int i = 0; i < 100; ++i) {
    rig.hub->tick();
    rig.hub->on_watch("tales", ipc::encode_watch(sample_update()));
  }
  CHECK(rig.asked == 0);
  CHECK(rig.hub->messages_sent() == 0);
  CHECK(rig.watched.empty());
}

TEST_CASE("a listener gets events; when the last one leaves, workers may stop reporting") {
  Rig rig(true);
  rig.live = {request(1, ::geteuid()), request(2, 4242)};
  {
    ipc::EventStream stream = ipc::EventStream::open(rig.temp.path()).value();
    REQUIRE(rig.until([&] { return rig.hub->listeners() == 1; }));
    CHECK(rig.watched == std::vector<bool>{true});
    rig.hub->on_watch("tales", ipc::encode_watch(sample_update()));
    rig.hub->tick();
    std::vector<ipc::StreamMessage> met;
    REQUIRE(rig.until([&] {
      for (ipc::StreamMessage& each : stream.wait(0)) met.push_back(std::move(each));
      return met.size() >= 4;
    }));
    CHECK(met[0].kind == "watch");
    CHECK(met[0].model == "tales");
    CHECK(met[1].kind == "stats");
    CHECK(met[2].kind == "models");
    CHECK(met[3].kind == "requests");
    const auto rows = ipc::decode_watch(met[3].payload);
    REQUIRE(rows.ok());
    REQUIRE(rows->requests.size() == 2);           // an administrator sees all users'
    CHECK(rows->requests[0].cached_tokens == 48);  // joined from the worker's reports
    const auto steps = ipc::decode_watch(met[0].payload);
    REQUIRE(steps.ok());
    CHECK(steps->steps[0].prefills[1].request == 2);
    CHECK(steps->requests.empty());
    CHECK(steps->prefixes.size() == 3);
  }
  REQUIRE(rig.until([&] { return rig.hub->listeners() == 0; }));
  CHECK(rig.watched == std::vector<bool>{true, false});
}

TEST_CASE("a listener that is not an administrator sees nothing of others' requests") {
  Rig rig(false);
  rig.live = {request(1, ::geteuid()), request(2, 4242)};
  ipc::EventStream stream = ipc::EventStream::open(rig.temp.path()).value();
  REQUIRE(rig.until([&] { return rig.hub->listeners() == 1; }));
  rig.hub->tick();
  rig.hub->on_watch("tales", ipc::encode_watch(sample_update()));
  std::vector<ipc::StreamMessage> met;
  REQUIRE(rig.until([&] {
    for (ipc::StreamMessage& each : stream.wait(0)) met.push_back(std::move(each));
    return met.size() >= 4;
  }));
  const auto rows = ipc::decode_watch(met[2].payload);
  REQUIRE(rows.ok());
  REQUIRE(rows->requests.size() == 1);
  CHECK(rows->requests[0].id == "r1");
  const auto steps = ipc::decode_watch(met[3].payload);
  REQUIRE(steps.ok());
  CHECK(steps->steps[0].prefills[0].request == 1);
  CHECK(steps->steps[0].prefills[1].request == 0);
  CHECK(steps->steps[0].prefills[1].tokens == 20);
  CHECK(steps->pools[0].runs[0].request == 0);
  CHECK_FALSE(steps->has_prefixes);
  CHECK(steps->prefixes.empty());
}

TEST_CASE("another user's topic is refused") {
  Rig rig(true);
  ipc::Context context = ipc::Context::create().value();
  ipc::Socket socket = ipc::Socket::open(context, ipc::SocketType::kSub).value();
  REQUIRE(socket.subscribe("uid:4242/0123456789abcdef").ok());
  REQUIRE(socket.subscribe("alive:uid:4242/0123456789abcdef").ok());
  REQUIRE(socket.subscribe("uid:").ok());
  REQUIRE(socket.subscribe(ipc::stream_topic_prefix(::geteuid()) + std::string(200, 'x')).ok());
  REQUIRE(socket.subscribe("").ok());
  REQUIRE(socket.connect("ipc://" + ipc::events_socket(rig.temp.path()).string()).ok());
  ipc::EventStream own = ipc::EventStream::open(rig.temp.path()).value();
  REQUIRE(rig.until([&] { return rig.hub->listeners() == 1; }));
  for (int i = 0; i < 5; ++i) rig.hub->tick();
  size_t met = 0;
  REQUIRE(rig.until([&] { return (met += own.wait(0).size()) > 0; }));
  ipc::Message message;
  CHECK(socket.receive(message) == ipc::ReceiveOutcome::kWouldBlock);
}

TEST_CASE("a listener that stops reading loses messages, delays no other, and is dropped") {
  Rig rig(true);
  ipc::EventStream idle = ipc::EventStream::open(rig.temp.path()).value();
  REQUIRE(rig.until([&] { return rig.hub->listeners() == 1; }));
  const std::string big = ipc::encode_watch(sample_update());
  for (int i = 0; i < 20'000; ++i) rig.hub->on_watch("tales", big);
  CHECK(rig.hub->messages_sent() == 20'000);
  rig.clock.advance_us(ipc::kStreamLeaseUs + 1);
  rig.hub->tick();
  CHECK(rig.hub->listeners() == 0);
  CHECK(rig.watched == std::vector<bool>{true, false});
  rig.hub->on_watch("tales", big);
  rig.hub->tick();
  CHECK(rig.hub->messages_sent() == 20'000);
  CHECK(rig.asked == 0);
  // It reads again: it gets the messages in its queue, the number of lost ones, and a full
  // snapshot.
  size_t met = 0;
  REQUIRE(rig.until([&] {
    met += idle.wait(0).size();
    return met > 0 && rig.hub->listeners() == 1;
  }));
  CHECK(met < 20'000);
  CHECK(rig.watched == std::vector<bool>{true, false, true});
  // New messages follow those in the queue, as soon as there is room.
  CHECK(rig.until([&] {
    rig.hub->on_watch("stories", big);
    return std::ranges::any_of(
        idle.wait(0), [](const ipc::StreamMessage& message) { return message.model == "stories"; });
  }));
}

TEST_CASE("a user's subscriptions are bounded, and free again when one leaves") {
  Rig rig(true);
  std::vector<ipc::EventStream> streams;
  for (int i = 0; i < 20; ++i) streams.push_back(ipc::EventStream::open(rig.temp.path()).value());
  REQUIRE(rig.until([&] { return rig.hub->listeners() == 16; }));
  for (int i = 0; i < 20; ++i) {
    rig.io.restart();
    rig.io.run_for(std::chrono::milliseconds(5));
  }
  CHECK(rig.hub->listeners() == 16);
  streams.clear();
  REQUIRE(rig.until([&] { return rig.hub->listeners() == 0; }));
  ipc::EventStream next = ipc::EventStream::open(rig.temp.path()).value();
  CHECK(rig.until([&] { return rig.hub->listeners() == 1; }));
}

TEST_CASE("invalid events of a worker are dropped") {
  Rig rig(true);
  ipc::EventStream stream = ipc::EventStream::open(rig.temp.path()).value();
  REQUIRE(rig.until([&] { return rig.hub->listeners() == 1; }));
  rig.hub->on_watch("tales", "rubbish");
  CHECK(rig.hub->messages_sent() == 0);
}

}  // namespace
}  // namespace hearth::broker
