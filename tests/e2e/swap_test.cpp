// Models are loaded and unloaded under continuous requests.

#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <random>
#include <thread>
#include <utility>

#include "tests/e2e/daemon.h"
#include "tests/e2e/notify_socket.h"
#include "tests/e2e/tiny_model.h"
#include "tests/skip.h"

namespace hearth::e2e {
namespace {

const std::vector<std::string> kNames = {"one", "two"};

Sandbox& with_models(Sandbox& sandbox) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    write_tiny_model(sandbox.models() / (kNames[i] + ".gguf"), static_cast<uint32_t>(i + 1));
  }
  return sandbox;
}

ipc::GenerateRequest named(const std::string& model, uint64_t seed, int32_t max_tokens) {
  ipc::GenerateRequest request = seeded(seed, max_tokens);
  request.model = model;
  return request;
}

std::string state_of(ipc::Client& client, const std::string& model) {
  const Result<ipc::ModelsReply> reply = client.models();
  REQUIRE(reply.ok());
  for (const ipc::ModelEntry& entry : reply->models) {
    if (entry.name == model) return entry.state;
  }
  return "";
}

/// Sends requests to the role until `stop` is set.
struct Streamer {
  static constexpr uint64_t kSeeds = 3;
  static constexpr int32_t kTokens = 150;

  struct Text {
    std::string model;
    uint64_t seed;
    std::vector<int32_t> ids;
  };
  std::vector<Text> texts;
  std::vector<std::string> problems;

  void run(const Daemon& daemon, uint64_t first_seed, const std::atomic<bool>& stop) {
    Result<ipc::Client> client = ipc::Client::connect(daemon.client_options());
    if (!client) return problems.push_back(client.error().message);
    for (uint64_t seed = first_seed; !stop; ++seed) {
      Text text{"", seed % kSeeds, {}};
      ipc::GenerateCallbacks callbacks;
      callbacks.on_delta = [&](const ipc::Delta& delta) {
        text.ids.insert(text.ids.end(), delta.ids.begin(), delta.ids.end());
      };
      const Result<ipc::DoneEvent> done =
          client->generate(named("default", text.seed, kTokens), callbacks);
      if (!done) return problems.push_back(done.error().message);
      if (done->finish_reasons[0] != "length") problems.push_back(done->finish_reasons[0]);
      text.model = done->model;
      texts.push_back(std::move(text));
    }
  }
};

void swap_under_load(const std::vector<std::string>& settings, int clients, int swaps) {
  Sandbox sandbox;
  const Daemon daemon(with_models(sandbox), settings);
  std::atomic<bool> stop = false;
  std::vector<Streamer> streamers(static_cast<size_t>(clients));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < streamers.size(); ++i) {
    threads.emplace_back([&, i] { streamers[i].run(daemon, i, stop); });
  }
  ipc::Client admin = daemon.connect();
  std::vector<std::string> failed;
  for (int i = 0; i < swaps; ++i) {
    const std::string& to = kNames[static_cast<size_t>(i + 1) % 2];
    const Result<ipc::SwapReply> reply = admin.swap({.role = "default", .model = to});
    if (!reply) failed.push_back(reply.error().message);
    // The other model is loaded again for the next swap.
    if (i % 3 == 2) (void)admin.unload({.model = kNames[static_cast<size_t>(i) % 2]});
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(failed == std::vector<std::string>{});

  std::map<std::pair<std::string, uint64_t>, std::vector<int32_t>> want;
  for (const std::string& model : kNames) {
    for (uint64_t seed = 0; seed < Streamer::kSeeds; ++seed) {
      const Answer answer = run(admin, named(model, seed, Streamer::kTokens));
      REQUIRE_MESSAGE(answer.done, why(answer));
      want[{model, seed}] = answer.ids[0];
    }
  }
  std::map<std::string, size_t> by_model;
  for (const Streamer& streamer : streamers) {
    CHECK(streamer.problems == std::vector<std::string>{});
    for (const Streamer::Text& text : streamer.texts) {
      CHECK(text.ids == want[{text.model, text.seed}]);
      ++by_model[text.model];
    }
  }
  CHECK(by_model.size() == 2);
}

TEST_CASE("role swaps with room for both models under continuous clients: nothing lost or wrong") {
  const bool full = tests::full_counts();
  swap_under_load({"limits.max_resident=2", "residency.memory_bytes=1073741824"}, full ? 8 : 4,
                  full ? 20 : 6);
}

TEST_CASE("role swaps with room for one model: the old one drains first, nothing is lost") {
  const bool full = tests::full_counts();
  swap_under_load({"limits.max_resident=1", "residency.memory_bytes=1073741824"}, full ? 8 : 3,
                  full ? 20 : 3);
}

TEST_CASE("random admin verbs under continuous clients: nothing lost or wrong") {
  Sandbox sandbox;
  const Daemon daemon(
      with_models(sandbox),
      {"limits.max_resident=2", "residency.memory_bytes=1073741824", "roles.fast=one"});
  std::atomic<bool> stop = false;
  std::vector<Streamer> streamers(3);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < streamers.size(); ++i) {
    threads.emplace_back([&, i] { streamers[i].run(daemon, i, stop); });
  }
  ipc::Client admin = daemon.connect();
  std::mt19937_64 random(tests::night_seed() != 0 ? tests::night_seed() : 23);
  std::vector<std::string> failed;
  const auto expect = [&failed](const std::string& verb, const auto& reply) {
    if (!reply.ok()) failed.push_back(verb + ": " + reply.error().message);
  };
  ipc::CacheRequest stats;
  stats.op = "stats";
  const int verbs = tests::full_counts() ? 200 : 50;
  for (int i = 0; i < verbs; ++i) {
    const std::string model = kNames[random() % 2];
    switch (random() % 9) {
      case 0: expect("swap default", admin.swap({.role = "default", .model = model})); break;
      case 1: expect("swap fast", admin.swap({.role = "fast", .model = model})); break;
      case 2: expect("load", admin.load({.model = model})); break;
      case 3: expect("unload", admin.unload({.model = model})); break;
      case 4: expect("ps", admin.ps()); break;
      case 5: expect("models", admin.models()); break;
      case 6: expect("stats", admin.stats()); break;
      case 7: expect("cache", admin.cache(stats)); break;
      case 8: {
        // Cancels a request of its own, early or late.
        const std::string id = "own-" + std::to_string(i);
        expect("start", admin.start(named("fast", 7, 400), id));
        if (random() % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        (void)admin.cancel(id);  // it may have ended
        const auto answers = collect(admin, 1);
        if (!answers.at(id).done) failed.push_back(id + ": " + why(answers.at(id)));
        break;
      }
    }
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(failed == std::vector<std::string>{});
  std::map<std::pair<std::string, uint64_t>, std::vector<int32_t>> want;
  size_t texts = 0;
  for (const std::string& model : kNames) {
    for (uint64_t seed = 0; seed < Streamer::kSeeds; ++seed) {
      const Answer answer = run(admin, named(model, seed, Streamer::kTokens));
      REQUIRE_MESSAGE(answer.done, why(answer));
      want[{model, seed}] = answer.ids[0];
    }
  }
  for (const Streamer& streamer : streamers) {
    CHECK(streamer.problems == std::vector<std::string>{});
    texts += streamer.texts.size();
    for (const Streamer::Text& text : streamer.texts) {
      CHECK(text.ids == want[{text.model, text.seed}]);
    }
  }
  CHECK(texts > streamers.size());
  CHECK(daemon.wait_until_idle());
}

TEST_CASE("load, unload and the states between, as the command line shows them") {
  Sandbox sandbox;
  const Daemon daemon(with_models(sandbox), {"roles.fast=one", "models.two.keep_alive_ms=1"});
  ipc::Client client = daemon.connect();
  CHECK(state_of(client, "one") == "found");
  ::setenv("HEARTH_RUNTIME_DIR", daemon.runtime().c_str(), 1);
  const auto hearth = [&](std::vector<std::string> words) {
    const std::filesystem::path output = sandbox.path() / "output";
    std::filesystem::remove(output);
    words.insert(words.begin(), program("hearth").string());
    const std::optional<int> status = wait_for_exit(start_program(words, output), kPatienceMs);
    REQUIRE(status.has_value());
    return text_of(output);
  };
  CHECK(hearth({"load", "fast"}).starts_with("one in memory after "));
  CHECK(hearth({"load", "one"}).starts_with("one is in memory already: weights "));
  CHECK(hearth({"swap", "default", "two"}) == "default is two now (one before)\n");
  CHECK(hearth({"models"}).find("resident") != std::string::npos);
  CHECK(hearth({"unload", "one"}) == "one unloaded\n");
  CHECK(hearth({"unload", "one"}) == "one was not in memory\n");
  CHECK(hearth({"swap", "slow", "two"}).find("no role slow; there are: default, fast") !=
        std::string::npos);
  CHECK(hearth({"load", "one", "--keep-alive", "soon"}).find("want 90s") != std::string::npos);
  ::unsetenv("HEARTH_RUNTIME_DIR");
  // A keep-alive of a millisecond: unloaded at once, and loaded again for the next request.
  CHECK(eventually([&] { return state_of(client, "two") == "parked"; }));
  CHECK(run(client, named("two", 1, 5)).done.has_value());

  const Result<ipc::LoadReply> loaded = client.load({.model = "one", .keep_alive_ms = 0});
  REQUIRE(loaded.ok());
  const Result<ipc::ModelsReply> models = client.models();
  REQUIRE(models.ok());
  CHECK(models->models[0].weight_bytes == loaded->weight_bytes);
  // Of the KV only what is backed; in addition there are activations and logits.
  const ipc::ModelEntry& one = models->models[0];
  CHECK(one.kv_bytes == loaded->kv_bytes);
  CHECK(one.kv_backed_bytes <= one.kv_bound_bytes);
  CHECK(one.kv_bound_bytes <= one.kv_bytes);
  CHECK(one.memory_bytes > one.weight_bytes + one.kv_backed_bytes);
}

/// Some hundred tokens that nothing else begins with.
std::string long_prompt(uint32_t seed) {
  std::mt19937 random(seed);
  std::string out;
  for (int i = 0; i < 2000; ++i) out += static_cast<char>('a' + random() % 26);
  return out;
}

ipc::ModelEntry entry_of(ipc::Client& client, const std::string& model) {
  const Result<ipc::ModelsReply> reply = client.models();
  REQUIRE(reply.ok());
  const auto found = std::ranges::find(reply->models, model, &ipc::ModelEntry::name);
  REQUIRE(found != reply->models.end());
  return *found;
}

TEST_CASE("a third model makes an idle pool shrink before anything is unloaded") {
  constexpr uint64_t kMiB = 1 << 20;
  constexpr uint64_t kFull = 22 * kMiB;  // with the floors of two others more than the budget
  Sandbox sandbox;
  write_tiny_model(with_models(sandbox).models() / "three.gguf", 3);
  // Each reserves 40 MiB for KV, so not even two would fit if that counted.
  const Daemon daemon(sandbox,
                      {"worker.kv_type=f32", "worker.kv_bytes=41943040", "worker.max_seqs=4",
                       "residency.memory_bytes=58720256"},
                      Company::kAlone);
  ipc::Client client = daemon.connect();
  const auto ask = [&](const std::string& model, uint32_t seed) {
    ipc::GenerateRequest request = named(model, seed, 5);
    request.prompt = long_prompt(seed);
    const Answer answer = run(client, request);
    REQUIRE_MESSAGE(answer.done, why(answer));
    return answer.ids;
  };
  const auto first = ask("one", 1);
  const pid_t worker = entry_of(client, "one").worker_pid;
  uint32_t seed = 1;
  // Cached prefixes fill its pool. Free blocks do not count: an idle pool gives them back after two
  // seconds, which loading the next model may take.
  REQUIRE(eventually([&] {
    ask("one", ++seed);
    return entry_of(client, "one").kv_bytes_used >= kFull;
  }));
  const auto second = ask("two", 1);
  CHECK(entry_of(client, "one").state == "resident");
  CHECK(entry_of(client, "one").kv_backed_bytes >= kFull);
  ask("three", 1);
  for (const char* model : {"one", "two", "three"}) {
    CAPTURE(model);
    const ipc::ModelEntry entry = entry_of(client, model);
    CHECK(entry.state == "resident");
    CHECK(entry.kv_bytes == 40 * kMiB);
  }
  CHECK(entry_of(client, "one").worker_pid == worker);
  CHECK(entry_of(client, "one").kv_backed_bytes < kFull);
  CHECK(ask("one", 1) == first);
  CHECK(ask("two", 1) == second);
  CHECK(daemon.wait_until_idle());
}

TEST_CASE("settings of one model apply to it alone, and its keep-alive from a reload on") {
  Sandbox sandbox;
  const std::filesystem::path file = with_models(sandbox).path() / "hearth.toml";
  const auto write = [&file](const std::string& text) { std::ofstream(file) << text; };
  write("[models.one]\ncontext_length = 512\nkv_type = \"f32\"\n");
  const Daemon daemon(sandbox, {}, Company::kAlone, file);
  ipc::Client client = daemon.connect();
  REQUIRE(run(client, named("one", 1, 5)).done);
  REQUIRE(run(client, named("two", 1, 5)).done);
  CHECK(entry_of(client, "one").context_length == 512);
  CHECK(entry_of(client, "two").context_length == kTinyContext);
  CHECK(run(client, named("one", 1, 600)).error->code == ErrorCode::kContextOverflow);
  write("[models.one]\ncontext_length = 256\nkeep_alive_ms = 1\n");
  daemon.signal(SIGHUP);
  CHECK(eventually([&] { return state_of(client, "one") == "parked"; }));
  CHECK(state_of(client, "two") == "resident");
  REQUIRE(run(client, named("one", 1, 5)).done);
  CHECK(eventually([&] { return entry_of(client, "one").context_length == 256; }));
}

TEST_CASE("weights that stay in the file count as nothing, and a changed file is loaded again") {
  Sandbox sandbox;
  with_models(sandbox);
  std::vector<std::vector<int32_t>> want, other;  // of one sample
  uint64_t whole = 0;
  {
    const Daemon daemon(sandbox, {});
    ipc::Client client = daemon.connect();
    want = run(client, named("one", 1, 40)).ids;
    other = run(client, named("two", 1, 40)).ids;
    whole = entry_of(client, "one").weight_bytes;
  }
  const Daemon daemon(sandbox, {"worker.mapping=file", "worker.weight_bytes=20000"});
  ipc::Client client = daemon.connect();
  CHECK(run(client, named("one", 1, 40)).ids == want);
  CHECK(entry_of(client, "one").weight_bytes < whole / 2);

  // The other model's weights, written over the file that is mapped.
  const std::string text = text_of(sandbox.models() / "two.gguf");
  REQUIRE(text.size() == std::filesystem::file_size(sandbox.models() / "one.gguf"));
  std::fstream(sandbox.models() / "one.gguf", std::ios::binary | std::ios::in | std::ios::out)
      << text;
  const Answer cut = run(client, named("one", 1, 40));
  if (cut.error) {
    CHECK(cut.error->message.find("one.gguf") != std::string::npos);
  } else {
    CHECK(cut.ids == other);
  }
  CHECK(eventually([&] { return run(client, named("one", 1, 40)).ids == other; }));
}

TEST_CASE("a file that is cut while it is served ends its requests, and no others") {
  Sandbox sandbox;
  const Daemon daemon(with_models(sandbox), {"worker.mapping=file", "limits.max_resident=2"});
  ipc::Client client = daemon.connect();
  ipc::Client other = daemon.connect();
  const Answer want = run(other, named("two", 1, 200));
  REQUIRE(want.done);
  bool cut = false;
  const Answer answer = run(client, named("one", 1, 3000), [&](const Answer&) {
    if (std::exchange(cut, true)) return;
    const std::filesystem::path file = sandbox.models() / "one.gguf";
    std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
  });
  REQUIRE(cut);
  CHECK_MESSAGE(answer.error, why(answer));
  CHECK(run(other, named("two", 1, 200)).ids == want.ids);
  CHECK(run(client, named("one", 1, 5)).error);
}

TEST_CASE("a model above the budget is refused with the sizes before its memory is taken") {
  Sandbox sandbox;
  const Daemon daemon(with_models(sandbox), {"residency.memory_bytes=20000000"});  // KV is 32 MiB
  ipc::Client client = daemon.connect();
  const Answer answer = run(client, named("one", 1, 5));
  REQUIRE(answer.error);
  CHECK(answer.error->code == ErrorCode::kOutOfMemory);
  CHECK(answer.error->message.find("KV 33554432), residency.memory_bytes is 20000000") !=
        std::string::npos);
}

TEST_CASE(
    "the machine sleeps in mid-stream: the worker is closed, and the text continues afterwards") {
  Sandbox sandbox;
  const Daemon daemon(with_models(sandbox), {"server.sleep_closes=all"});
  ipc::Client client = daemon.connect();
  const Answer want = run(client, named("one", 5, 3000));
  REQUIRE(want.done);
  bool slept = false;
  const Answer answer = run(client, named("one", 5, 3000), [&](const Answer& so_far) {
    if (slept || so_far.ids[0].size() < 200) return;
    slept = true;
    ipc::Client other = daemon.connect();
    daemon.signal(SIGUSR1);
    CHECK(eventually([&] { return daemon.stats().workers.empty(); }));
    daemon.signal(SIGUSR2);
  });
  REQUIRE(slept);
  REQUIRE_MESSAGE(answer.done, why(answer));
  CHECK(answer.ids == want.ids);
  CHECK(answer.done->resumed == 0);  // not a death: it was asked to end
}

TEST_CASE("under a service manager, ready means that a token can be generated") {
  Sandbox sandbox;
  NotifySocket manager(sandbox.path());
  const Daemon daemon(with_models(sandbox), {"roles.default=two"});
  ipc::Client client = daemon.connect();
  CHECK(manager.hears("READY=1"));
  CHECK(state_of(client, "two") == "resident");
  const std::string& heard = manager.heard();
  CHECK(heard.find("EXTEND_TIMEOUT_USEC=30000000") < heard.find("READY=1"));
  CHECK(heard.find("two (loading, ") < heard.find("READY=1"));
}

TEST_CASE("a flood above the limit: the surplus gets `busy`, accepted requests end well") {
  Sandbox sandbox;
  const bool full = tests::full_counts();
  const int bound = full ? 256 : 16;
  const int flood = full ? 10'000 : 600;
  const Daemon daemon(with_models(sandbox),
                      {"limits.max_requests=" + std::to_string(bound),
                       "limits.max_requests_per_owner=" + std::to_string(bound)});
  ipc::Client client = daemon.connect();
  REQUIRE(run(client, named("one", 1, 5)).done);
  std::map<std::string, int32_t> tokens;
  int sent = 0, done = 0, busy = 0;
  const auto take = [&](int timeout_ms) {
    const Result<std::optional<ipc::Arrival>> arrival = client.next(timeout_ms);
    REQUIRE(arrival.ok());
    if (!*arrival) return;
    if (const auto* delta = std::get_if<ipc::Delta>(&(**arrival).what)) {
      tokens[(**arrival).request_id] += static_cast<int32_t>(delta->ids.size());
      return;
    }
    const auto& event = std::get<ipc::Event>((**arrival).what);
    if (std::holds_alternative<ipc::DoneEvent>(event)) {
      CHECK(tokens[(**arrival).request_id] == 50);
      ++done;
    } else if (const auto* error = std::get_if<ipc::ErrorEvent>(&event)) {
      CHECK(error->error.code == ErrorCode::kBusy);
      CHECK(error->retry_ms > 0);
      ++busy;
    }
  };
  while (sent < flood) {
    // If our side of the socket is full we read first.
    client.start(named("one", 1, 50)).ok() ? static_cast<void>(++sent) : take(10);
  }
  const int64_t end = now_ms() + kPatienceMs;
  while (done + busy < flood && now_ms() < end) take(100);
  CHECK(done + busy == flood);
  CHECK(done >= bound);
  CHECK(busy > 0);
  CHECK(daemon.wait_until_idle());
}

// The same on a small scale with real processes; all orders are tried with simulated workers.
TEST_CASE("random loads, swaps, requests, cancels and kills with real processes end well") {
  Sandbox sandbox;
  const Daemon daemon(with_models(sandbox), {"limits.max_resident=2", "residency.turn_ms=100",
                                             "residency.keep_alive_ms=300"});
  std::atomic<bool> stop = false;
  std::atomic<int> verbs = 0;
  std::thread administrator([&] {
    std::mt19937 random(3);
    Result<ipc::Client> client = ipc::Client::connect(daemon.client_options());
    while (client && !stop) {
      const std::string& model = kNames[random() % 2];
      switch (random() % 4) {
        case 0: (void)client->load({.model = model}); break;
        case 1: (void)client->unload({.model = model}); break;
        case 2: (void)client->swap({.role = "default", .model = model}); break;
        default:
          if (const Result<ipc::StatsReply> stats = client->stats()) {
            for (const ipc::WorkerStats& worker : stats->workers) {
              if (random() % 6 == 0 && worker.pid > 0) ::kill(worker.pid, SIGKILL);
            }
          }
      }
      ++verbs;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
  std::mt19937 random(4);
  ipc::Client client = daemon.connect();
  const int requests = tests::full_counts() ? 300 : 40;
  int ended = 0;
  for (int i = 0; i < requests; ++i) {
    const std::string model = random() % 2 == 0 ? "default" : kNames[random() % 2];
    const auto max_tokens = static_cast<int32_t>(1 + random() % 300);
    const bool cancels = random() % 4 == 0;
    bool cancelled = false;
    const Result<std::string> id = client.start(named(model, 9, max_tokens));
    REQUIRE(id.ok());
    const int64_t end = now_ms() + kPatienceMs;
    for (bool over = false; !over && now_ms() < end;) {
      const Result<std::optional<ipc::Arrival>> arrival = client.next(100);
      REQUIRE(arrival.ok());
      if (!*arrival || (**arrival).request_id != *id) continue;
      if (cancels && !std::exchange(cancelled, true)) {
        REQUIRE(client.request_cancel(*id).ok());
      }
      const auto* event = std::get_if<ipc::Event>(&(**arrival).what);
      if (event == nullptr) continue;
      over = std::holds_alternative<ipc::DoneEvent>(*event);
      if (const auto* error = std::get_if<ipc::ErrorEvent>(event)) {
        CHECK(error->error.code != ErrorCode::kInternal);
        CHECK(error->error.code != ErrorCode::kLost);
        over = true;
      }
      ended += over ? 1 : 0;
    }
  }
  CHECK(ended == requests);
  stop = true;
  administrator.join();
  CHECK(verbs > 0);
  CHECK(daemon.wait_until_idle());
}

}  // namespace
}  // namespace hearth::e2e
