// KV events of the real daemon, as a router subscribes to them (docs/kv-events.md).

#include <doctest/doctest.h>
#include <signal.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/e2e/daemon.h"
#include "tests/kv_subscriber.h"

namespace hearth::e2e {
namespace {

using Json = nlohmann::json;
using tests::KvMessage;
using tests::KvReplayClient;
using tests::KvSubscriber;

std::string endpoint(const Daemon& daemon, const char* socket) {
  return "ipc://" + (daemon.runtime() / socket).string();
}

/// What a router knows: by medium, the tokens of each cached block and the block before it.
struct Known {
  struct Block {
    std::vector<int32_t> tokens;
    Json parent, scope;
  };
  std::map<std::string, std::map<uint64_t, Block>> blocks;
  std::set<std::string> scopes;
  int cleared = 0, events = 0, unknown_removed = 0;
  uint64_t next = 0;
  uint64_t missed = 0;

  void take(const KvMessage& message) {
    missed += message.sequence - next;
    next = message.sequence + 1;
    const Json batch = Json::from_msgpack(message.payload);
    REQUIRE(batch.size() == 3);
    CHECK(batch[0].get<double>() > 1.7e9);
    CHECK(batch[2] == 0);
    for (const Json& event : batch[1]) take_event(event);
  }
  void take_event(const Json& event) {
    ++events;
    if (event["type"] == "AllBlocksCleared") {
      ++cleared;
      return blocks.clear();
    }
    auto& of_medium = blocks[event["medium"]];
    CHECK(event["group_idx"] == 0);
    if (event["type"] == "BlockRemoved") {
      for (const uint64_t hash : event["block_hashes"]) unknown_removed += !of_medium.erase(hash);
      return;
    }
    REQUIRE(event["type"] == "BlockStored");
    CHECK(event["block_size"] == 16);
    CHECK(event["lora_name"].is_null());
    const std::vector<int32_t> tokens = event["token_ids"];
    const Json& hashes = event["block_hashes"];
    REQUIRE(tokens.size() == 16 * hashes.size());
    REQUIRE(event["extra_keys"].size() == hashes.size());
    Json parent = event["parent_block_hash"];
    for (size_t i = 0; i < hashes.size(); ++i) {
      const Json& scope = event["extra_keys"][i];
      CHECK(scope.is_null() == !parent.is_null());
      if (!scope.is_null()) scopes.insert(scope[0]);
      of_medium[hashes[i]] = {{tokens.begin() + 16 * static_cast<ptrdiff_t>(i),
                               tokens.begin() + 16 * static_cast<ptrdiff_t>(i + 1)},
                              std::exchange(parent, hashes[i]),
                              scope};
    }
  }
  /// Tokens at the front of `prompt` that this medium has.
  size_t cached(const std::string& medium, const std::vector<int32_t>& prompt) const {
    const auto found = blocks.find(medium);
    if (found == blocks.end()) return 0;
    Json parent;
    size_t at = 0;
    for (bool more = true; std::exchange(more, false);) {
      for (const auto& [hash, block] : found->second) {
        if (block.parent != parent || at + 16 > prompt.size() ||
            !std::equal(block.tokens.begin(), block.tokens.end(),
                        prompt.begin() + static_cast<ptrdiff_t>(at))) {
          continue;
        }
        parent = hash;
        at += 16;
        more = true;
        break;
      }
    }
    return at;
  }
};

/// A request for these ids, shared under that name unless it is empty.
ipc::GenerateRequest of_ids(std::vector<int32_t> ids, const std::string& share) {
  ipc::GenerateRequest request;
  request.model = "tiny";
  request.prompt_ids = std::move(ids);
  request.cache_share = share;
  request.max_tokens = 4;
  request.temperature = 0;
  return request;
}

std::vector<int32_t> ids_from(int32_t first, int32_t count) {
  std::vector<int32_t> out;
  for (int32_t i = 0; i < count; ++i) out.push_back(first + i % 23);
  return out;
}

TEST_CASE("a subscriber knows what a shared scope has cached, and nothing of single owners") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox, {"kv_events.publish=shared", "kv_events.pod=box"}, Company::kAlone);
  KvSubscriber subscriber(endpoint(daemon, "kv-events.sock"));
  ipc::Client client = daemon.connect();
  int32_t joining = 0;
  REQUIRE(eventually([&] {  // until its subscription has arrived
    REQUIRE(run(client, of_ids(ids_from(joining++ % 30, 40), "docs")).done);
    return !subscriber.read(20).empty();
  }));
  const std::vector<int32_t> shared = ids_from(5, 200), own = ids_from(40, 200);
  REQUIRE(run(client, of_ids(own, "")).done);
  const Answer answer = run(client, of_ids(shared, "docs"));
  REQUIRE(answer.done);

  // By replays from the first message on, so that what came before the subscription is there.
  KvReplayClient replay(endpoint(daemon, "kv-replay.sock"));
  Known known;
  REQUIRE(eventually([&] {
    std::vector<KvMessage> met;
    replay.ask(known.next);
    REQUIRE(eventually([&] { return replay.read(met); }));
    for (const KvMessage& each : met) {
      CHECK(each.topic == "kv@box@tiny");
      known.take(each);
    }
    return known.cached("CPU", shared) == 192 && known.cached("STORAGE", shared) == 192;
  }));
  CHECK(known.missed == 0);
  CHECK(known.cleared == 1);
  CHECK(known.scopes == std::set<std::string>{"docs"});
  CHECK(known.cached("CPU", own) == 0);
  CHECK(known.cached("STORAGE", own) == 0);

  // The subscriber gets the next ones as they come; its gap is what it has to ask for.
  const std::vector<int32_t> more = ids_from(11, 100);
  REQUIRE(run(client, of_ids(more, "docs")).done);
  CHECK(eventually([&] {
    for (const KvMessage& each : subscriber.read(20)) {
      if (each.sequence >= known.next) known.take(each);
    }
    return known.cached("CPU", more) == 96;
  }));
  CHECK(known.unknown_removed == 0);

  // A worker's death clears what it had; what is stored is known again when it is used.
  ::kill(daemon.wait_for_worker(), SIGKILL);
  CHECK(eventually([&] {
    for (const KvMessage& each : subscriber.read(20)) {
      if (each.sequence >= known.next) known.take(each);
    }
    return known.cleared == 2;
  }));
  CHECK(known.cached("CPU", shared) == 0);
  CHECK(known.missed == 0);
}

TEST_CASE("with scope all, owners are published, too; evictions keep the subscriber exact") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox,
                      {"kv_events.publish=all", "worker.prefix_store=false",
                       "worker.kv_bytes=2000000", "worker.context_length=1024"},
                      Company::kAlone);
  ipc::Client client = daemon.connect();
  for (int32_t i = 0; i < 40; ++i) {
    REQUIRE(run(client, of_ids(ids_from(i, 600), i % 2 == 0 ? "" : "docs")).done);
  }
  REQUIRE(daemon.wait_until_idle());
  KvReplayClient replay(endpoint(daemon, "kv-replay.sock"));
  Known known;
  // Blocks that the subscriber knows are those that the daemon reports as cached.
  CHECK(eventually([&] {
    std::vector<KvMessage> met;
    replay.ask(known.next);
    REQUIRE(eventually([&] { return replay.read(met); }));
    for (const KvMessage& each : met) known.take(each);
    const ipc::StatsReply stats = daemon.stats();
    int64_t cached = 0;
    for (const ipc::WorkerStats& worker : stats.workers) {
      for (const int32_t blocks : worker.snapshot.kv_blocks_cached) cached += blocks;
    }
    return known.events > 0 && std::cmp_equal(known.blocks["CPU"].size(), cached);
  }));
  CHECK(known.missed == 0);
  CHECK(known.unknown_removed == 0);
  CHECK(known.scopes.size() == 2);
  CHECK(known.scopes.contains("docs"));
}

TEST_CASE("a subscriber that pauses within the buffer loses no event after a replay") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox, {"kv_events.publish=all", "worker.prefix_store=false"},
                      Company::kAlone);
  ipc::Client client = daemon.connect();
  KvSubscriber subscriber(endpoint(daemon, "kv-events.sock"));
  Known live;
  int32_t round = 0;
  const auto generate = [&] { REQUIRE(run(client, of_ids(ids_from(round++ % 40, 300), "")).done); };
  REQUIRE(eventually([&] {
    generate();
    for (const KvMessage& each : subscriber.read(20)) live.take(each);
    return live.events > 0;
  }));
  // From here on it reads nothing for a while.
  const uint64_t seen = live.next;
  for (int i = 0; i < 20; ++i) generate();
  const std::vector<int32_t> last = ids_from((round - 1) % 40, 300);
  KvReplayClient replay(endpoint(daemon, "kv-replay.sock"));
  std::vector<KvMessage> replayed, met;
  REQUIRE(eventually([&] {
    for (const KvMessage& each : subscriber.read(20)) met.push_back(each);
    replayed.clear();
    replay.ask(seen);
    REQUIRE(eventually([&] { return replay.read(replayed); }));
    Known known = live;
    for (const KvMessage& each : replayed) known.take(each);
    CHECK(known.missed == live.missed);
    return known.cached("CPU", last) == 288 && replayed.size() == met.size();
  }));
  CHECK(replayed == met);
}

TEST_CASE("KV events are off by default, and their addresses only of this machine") {
  const Sandbox sandbox;
  {
    const Daemon daemon(sandbox);
    ipc::Client client = daemon.connect();
    REQUIRE(run(client, of_ids(ids_from(1, 100), "docs")).done);
    CHECK_FALSE(std::filesystem::exists(daemon.runtime() / "kv-events.sock"));
  }
  const std::filesystem::path out = sandbox.path() / "out";
  const pid_t pid = start_program({program("hearthd").string(), "--set", "kv_events.publish=shared",
                                   "--set", "kv_events.listen=0.0.0.0:5557", "--set",
                                   "server.runtime_dir=" + (sandbox.path() / "other").string()},
                                  out);
  REQUIRE(wait_for_exit(pid, kPatienceMs).has_value());
  CHECK(text_of(out).find("kv_events.listen is \"0.0.0.0:5557\": other machines reach it") !=
        std::string::npos);
}

}  // namespace
}  // namespace hearth::e2e
