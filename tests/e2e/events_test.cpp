// What dashboards receive from the real daemon while a request runs.

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "ipc/client/event_stream.h"
#include "ipc/schema/watch.h"
#include "ipc/wire/codec.h"
#include "tests/e2e/daemon.h"
#include "tests/skip.h"

namespace hearth::e2e {
namespace {

struct Seen {
  int stats = 0, models = 0;
  uint64_t steps = 0;
  int64_t decode_rows = 0, prefill_tokens = 0;
  int64_t most_blocks_in_use = 0;
  bool whole_map = false;
  int unreadable = 0;
  std::vector<ipc::WatchedRequest> rows;
  uint64_t last_sequence = 0;
  int gaps = 0;

  void add(const ipc::StreamMessage& message) {
    if (message.kind == "stats") stats += ipc::decode_event(message.payload).ok() ? 1 : 0;
    if (message.kind == "models") models += ipc::decode_event(message.payload).ok() ? 1 : 0;
    if (message.kind != "watch" && message.kind != "requests") return;
    const Result<ipc::WatchUpdate> update = ipc::decode_watch(message.payload);
    if (!update.ok()) {
      ++unreadable;
      return;
    }
    for (const ipc::WatchedRequest& row : update->requests) rows.push_back(row);
    if (message.kind != "watch") return;
    if (last_sequence != 0 && update->sequence != last_sequence + 1) ++gaps;
    last_sequence = update->sequence;
    for (const ipc::WatchedStep& step : update->steps) {
      ++steps;
      decode_rows += step.decode_rows;
      for (const ipc::WatchedChunk& chunk : step.prefills) prefill_tokens += chunk.tokens;
    }
    for (const ipc::PoolUpdate& pool : update->pools) {
      whole_map = whole_map || pool.full;
      int64_t used = 0;
      for (const ipc::BlockRun& run : pool.runs) {
        if (run.refs > 0) used += run.count;
      }
      most_blocks_in_use = std::max(most_blocks_in_use, used);
    }
  }
};

TEST_CASE("a listener sees the steps, blocks and rows of a running request, and then leaves") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  REQUIRE(run(client, seeded(1, 4)).done);  // the model is resident
  Seen seen;
  {
    ipc::EventStream stream = ipc::EventStream::open(daemon.runtime()).value();
    REQUIRE(eventually([&] {
      for (const ipc::StreamMessage& message : stream.wait(20)) seen.add(message);
      return seen.whole_map && seen.stats > 0 && seen.models > 0;
    }));
    // Long enough for a few snapshots, whatever else the machine does.
    const std::string id = client.start(seeded(7, 200)).value();
    bool ended = false;
    REQUIRE(eventually([&] {
      for (const ipc::StreamMessage& message : stream.wait(20)) seen.add(message);
      while (!ended) {
        const auto next = client.next(0);
        REQUIRE(next.ok());
        if (!*next) break;
        const auto* event = std::get_if<ipc::Event>(&(*next)->what);
        ended = event != nullptr && std::holds_alternative<ipc::DoneEvent>(*event);
      }
      return ended && seen.decode_rows >= 150 && seen.prefill_tokens > 0;
    }));
    CHECK(seen.unreadable == 0);
    CHECK(seen.gaps == 0);
    for (const ipc::WatchedRequest& row : seen.rows) {
      CHECK(row.id == id);
      CHECK(row.model == "tiny");
      CHECK(row.owner.find("uid:") == 0);
    }
  }
  // After the listener has left, the next one starts with a whole map again.
  ipc::EventStream again = ipc::EventStream::open(daemon.runtime()).value();
  Seen second;
  CHECK(eventually([&] {
    for (const ipc::StreamMessage& message : again.wait(20)) second.add(message);
    return second.whole_map;
  }));
  CHECK(daemon.wait_until_idle());
}

/// hearth with these words, connected to this sandbox's daemon.
std::pair<int, std::string> hearth(const Sandbox& sandbox, const std::string& words) {
  const std::filesystem::path out = sandbox.path() / "out";
  std::filesystem::remove(out);
  const pid_t pid = start_program({"/bin/sh", "-c",
                                   "HEARTH_RUNTIME_DIR=" + sandbox.runtime().string() + " " +
                                       program("hearth").string() + " " + words},
                                  out);
  const std::optional<int> how = wait_for_exit(pid, kPatienceMs);
  REQUIRE(how.has_value());
  return {WIFEXITED(*how) ? WEXITSTATUS(*how) : -1, text_of(out)};
}

TEST_CASE("hearth stats --record stores events, and hearth top shows them live") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  REQUIRE(run(client, seeded(1, 4)).done);
  const std::filesystem::path file = sandbox.path() / "recording";
  const pid_t recorder =
      start_program({"/bin/sh", "-c",
                     "HEARTH_RUNTIME_DIR=" + sandbox.runtime().string() + " exec " +
                         program("hearth").string() + " stats --record " + file.string()});
  Seen seen;
  const auto read = [&] {
    seen = {};
    const auto messages = ipc::read_recording(file);
    for (size_t i = 0; messages.ok() && i < messages->size(); ++i) seen.add((*messages)[i]);
  };
  CHECK(eventually([&] { return read(), seen.whole_map; }, 50));
  REQUIRE(run(client, seeded(7, 60)).done);
  CHECK(eventually([&] { return read(), seen.decode_rows >= 59; }, 50));
  CHECK(seen.prefill_tokens > 0);
  CHECK(seen.models > 0);
  CHECK(seen.unreadable == 0);
  ::kill(recorder, SIGINT);
  const std::optional<int> how = wait_for_exit(recorder, kPatienceMs);
  REQUIRE(how.has_value());
  CHECK(WIFEXITED(*how));
  CHECK(WEXITSTATUS(*how) == 0);
  CHECK(hearth(sandbox, "stats --record /nonexistent/file --for 1").first == 1);

  const auto [status, text] = hearth(sandbox, "top --once");
  CHECK(status == 0);
  CHECK(text.find("tiny") != std::string::npos);
  CHECK(text.find("tokens/s") != std::string::npos);
  CHECK(text.find("(no live request)") != std::string::npos);
  CHECK(text.find('\x1b') == std::string::npos);
}

TEST_CASE(
    "a listener that stops reading is dropped, and gets a full snapshot when it reads again") {
  if (!tests::full_counts()) HEARTH_SKIP("takes ten seconds; HEARTH_TEST_FULL=1 runs it");
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  ipc::EventStream stream = ipc::EventStream::open(daemon.runtime()).value();
  REQUIRE(eventually([&] { return !stream.wait(20).empty(); }));
  const auto dropped = [&] {
    return text_of(sandbox.path() / "log").find("events_dropped") != std::string::npos;
  };
  REQUIRE(eventually(dropped, 100));
  // Its queue holds old messages first, then new ones.
  CHECK(eventually([&] {
    for (const ipc::StreamMessage& message : stream.wait(20)) {
      const Result<ipc::Event> event = ipc::decode_event(message.payload);
      if (message.kind != "stats" || !event.ok()) continue;
      if (std::get<ipc::StatsReply>(*event).uptime_ms > ipc::kStreamLeaseUs / 1000 + 1000) {
        return true;
      }
    }
    return false;
  }));
}

TEST_CASE("a listener survives the daemon and hears the next one") {
  const Sandbox sandbox;
  std::optional<Daemon> daemon(std::in_place, sandbox);
  ipc::EventStream stream = ipc::EventStream::open(daemon->runtime()).value();
  REQUIRE(eventually([&] { return !stream.wait(20).empty(); }));
  daemon.reset();
  while (!stream.wait(200).empty()) {
  }
  daemon.emplace(sandbox);
  CHECK(eventually([&] { return !stream.wait(20).empty(); }));
}

}  // namespace
}  // namespace hearth::e2e
