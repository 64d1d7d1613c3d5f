// Limits: how many, how large, how slow; and that nothing leaks.

#include <doctest/doctest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <random>
#include <string>

#include "ipc/wire/codec.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/raw_client.h"
#include "tests/e2e/tiny_model.h"
#include "tests/skip.h"

namespace hearth::e2e {
namespace {

TEST_CASE("the second user of tests with noise gets tokens") {
  if (::geteuid() != 0) HEARTH_SKIP("it takes root to be two users");
  const char* before = std::getenv("HEARTH_TEST_NOISE");
  const std::string kept = before == nullptr ? "0" : before;
  ::setenv("HEARTH_TEST_NOISE", "1", 1);
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  ::setenv("HEARTH_TEST_NOISE", kept.c_str(), 1);
  ipc::Client client = daemon.connect();
  REQUIRE(run(client, seeded(1, 3)).done);  // loads the model, which noise does not
  CHECK(eventually([&] { return daemon.stats().requests_done > 3; }));
}

TEST_CASE("above the limits a client gets `busy` with a time to retry") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox, {"limits.max_requests_per_owner=2"});
  ipc::Client client = daemon.connect();
  ipc::Client other = daemon.connect();  // the same user: the limit is the owner's
  REQUIRE(client.start(seeded(1, kTinyContext - 100), "a").ok());
  REQUIRE(client.start(seeded(2, kTinyContext - 100), "b").ok());
  // Connections have no order among each other.
  REQUIRE(eventually([&] { return client.ps()->requests.size() == 2; }));
  const Answer refused = run(other, seeded(3, 5));
  REQUIRE(refused.error);
  CHECK(refused.error->code == ErrorCode::kBusy);
  CHECK(refused.error->message == "you have 2 live requests, limit 2");
  CHECK(refused.retry_ms > 0);
  REQUIRE(other.cancel("a").ok());  // of the same user, though of another client
  REQUIRE(client.request_cancel("b").ok());
  const auto answers = collect(client, 2);
  CHECK(answers.at("a").done->finish_reasons[0] == "cancelled");
  CHECK(answers.at("b").done->finish_reasons[0] == "cancelled");
  CHECK(run(other, seeded(3, 5)).done.has_value());
}

TEST_CASE(
    "a live id cannot be used twice, a finished one can; cancelling an unknown id is an error") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  ipc::Client other = daemon.connect();
  REQUIRE(client.start(seeded(1, kTinyContext - 100), "same").ok());
  REQUIRE(eventually([&] { return client.ps()->requests.size() == 1; }));
  REQUIRE(other.start(seeded(1, 5), "same").ok());
  CHECK(collect(other, 1).at("same").error->code == ErrorCode::kInvalidArgument);
  REQUIRE(other.cancel("same").ok());
  CHECK(collect(client, 1).at("same").done->finish_reasons[0] == "cancelled");
  const Result<ipc::CancelReply> nothing = other.cancel("same");
  REQUIRE_FALSE(nothing.ok());
  CHECK(nothing.error().code == ErrorCode::kNotFound);
  REQUIRE(other.start(seeded(1, 5), "same").ok());
  CHECK(collect(other, 1).at("same").done.has_value());
}

TEST_CASE("a message above the limit is refused with both sizes") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox, {"limits.max_message_bytes=20000"});
  ipc::Client client = daemon.connect();
  const Answer answer = run(client, seeded(1, 5, std::string(30000, 'a')));
  REQUIRE(answer.error);
  CHECK(answer.error->code == ErrorCode::kTooLarge);
  CHECK(answer.error->message.find("limit 20000") != std::string::npos);
  CHECK(run(client, seeded(1, 5)).done.has_value());
}

std::vector<int32_t> read_ids(RawClient& client, bool* done, size_t* deltas) {
  std::vector<int32_t> ids;
  while (const auto frames = client.receive()) {
    std::vector<std::string_view> views(frames->begin(), frames->end());
    const Result<ipc::DaemonMessage> message = ipc::parse_daemon_message(views);
    REQUIRE(message.ok());
    if (message->answer.is_delta) {
      const Result<ipc::Delta> delta = ipc::decode_delta(message->answer);
      REQUIRE(delta.ok());
      CHECK(delta->header.first_index == ids.size());
      ids.insert(ids.end(), delta->ids.begin(), delta->ids.end());
      ++*deltas;
      continue;
    }
    const Result<ipc::Event> event = ipc::decode_event(message->answer.json);
    if (event.ok() && std::holds_alternative<ipc::DoneEvent>(*event)) {
      *done = true;
      return ids;
    }
    CHECK_FALSE((event.ok() && std::holds_alternative<ipc::ErrorEvent>(*event)));
  }
  return ids;
}

TEST_CASE("a client that does not read loses nothing and delays no other client") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox, {"limits.output_buffer_bytes=33554432"});
  ipc::Client client = daemon.connect();
  constexpr int32_t kTokens = 8000;
  ipc::GenerateRequest request = seeded(31, kTokens);
  request.logprobs = 20;  // large deltas, so that the socket fills
  const Answer want = run(client, request);
  REQUIRE(want.done);

  RawClient slow(daemon, 1);
  slow.send_json("s", ipc::encode_request(request));
  // Others are served to the end while this stream is not read, and it ends, too.
  REQUIRE(eventually([&] { return client.ps()->requests.size() == 1; }));
  CHECK(run(client, seeded(5, 200)).done.has_value());
  REQUIRE(eventually([&] { return client.ps()->requests.empty(); }));

  bool done = false;
  size_t deltas = 0;
  const std::vector<int32_t> ids = read_ids(slow, &done, &deltas);
  CHECK(done);
  CHECK(ids == want.ids[0]);
  CHECK(deltas < static_cast<size_t>(kTokens) / 2);  // they merged
}

TEST_CASE("a backlog above its limit ends the request with an error, and only that one") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox, {"limits.output_buffer_bytes=65536"});
  ipc::Client client = daemon.connect();
  ipc::GenerateRequest request = seeded(31, kTinyContext - 100);
  request.logprobs = 20;
  RawClient slow(daemon, 1);
  slow.send_json("s", ipc::encode_request(request));
  REQUIRE(eventually([&] { return daemon.stats().requests_total == 1; }));
  CHECK(run(client, seeded(5, 200)).done.has_value());
  CHECK(daemon.wait_until_idle());
  bool reported = false;
  while (const auto frames = slow.receive()) {
    if (frames->at(2) != "event") continue;
    const Result<ipc::Event> event = ipc::decode_event(frames->at(3));
    if (const auto* error = std::get_if<ipc::ErrorEvent>(&*event)) {
      CHECK(error->error.code == ErrorCode::kTooLarge);
      reported = true;
      break;
    }
  }
  CHECK(reported);
}

TEST_CASE("a connection that breaks without notice frees its blocks") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  {
    RawClient client(daemon);
    client.send_json("x", ipc::encode_request(seeded(1, kTinyContext - 100)));
    for (int deltas = 0; deltas < 20;) {
      const auto frames = client.receive();
      REQUIRE(frames);
      deltas += frames->at(2) == "delta" ? 1 : 0;
    }
  }
  CHECK(daemon.wait_until_idle());
  CHECK(daemon.stats().requests_cancelled == 1);
}

TEST_CASE("many requests with random cancels leave no block allocated") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox, {"worker.kv_bytes=4194304"});
  const int requests = tests::full_counts() ? 1000 : 150;
  std::mt19937 random(11);
  ipc::Client client = daemon.connect();
  size_t cancelled = 0;
  size_t finished = 0;
  int started = 0;
  std::map<std::string, int> live;  // deltas until it is cancelled; below 0: never
  const int64_t end = now_ms() + 4 * kPatienceMs;
  while ((started < requests || !live.empty()) && now_ms() < end) {
    if (started < requests && live.size() < 24) {
      ipc::GenerateRequest request =
          seeded(random(), 1 + static_cast<int32_t>(random() % 400),
                 "the abc " + std::string(random() % 300, static_cast<char>('a' + random() % 4)));
      request.n = 1 + static_cast<int32_t>(random() % 3);
      request.cache = random() % 4 != 0 ? "memory" : "off";
      const Result<std::string> id = client.start(request);
      REQUIRE(id.ok());
      live[*id] = random() % 2 == 0 ? static_cast<int>(1 + random() % 50) : -1;
      ++started;
    }
    Result<std::optional<ipc::Arrival>> arrival = client.next(5);
    REQUIRE(arrival.ok());
    if (!*arrival) continue;
    const std::string& id = (**arrival).request_id;
    const auto* event = std::get_if<ipc::Event>(&(**arrival).what);
    if (event == nullptr) {
      if (--live[id] == 0) REQUIRE(client.request_cancel(id).ok());
      continue;
    }
    if (const auto* done = std::get_if<ipc::DoneEvent>(event)) {
      live.erase(id);
      bool any = false;
      for (const std::string& reason : done->finish_reasons) any = any || reason == "cancelled";
      ++(any ? cancelled : finished);
    }
    if (const auto* error = std::get_if<ipc::ErrorEvent>(event)) {
      FAIL(error->error.message);
    }
  }
  CHECK(cancelled + finished == static_cast<size_t>(requests));
  CHECK(cancelled > 0);
  CHECK(finished > 0);
  CHECK(daemon.wait_until_idle());
}

}  // namespace
}  // namespace hearth::e2e
