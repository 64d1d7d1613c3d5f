// hearth-residency-bench: what sleeping gives back, what waking costs, and what a second replica
// adds, with the real hearthd and workers of this build and a model of random weights in Q8_0.
//
//   sleep      memory of the worker: loaded, asleep; first token of a prompt of 16 tokens and of
//              one whose 512 tokens are cached: awake, woken from sleep, and loaded again from the
//              page cache
//   replicas   8 clients, 4 system prompts of 512 tokens: tokens per second and prefix hits of one
//              worker on core 0, and of two, on cores 0 and 1
//
//   hearth-residency-bench [--replicas [--question N] [--answer N]] [--shape NAME | --smoke]
// `sleep`, or with --replicas that alone: questions after the system prompt and answers of 32
// tokens, or so many. S (1.3 GB) by default, for replicas 0.1B. --smoke: a tiny model and one
// round, for ctest. Prints medians; never judges.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "ipc/client/client.h"
#include "kernels/base/check.h"
#include "models/random_model.h"
#include "tests/bench/bench_daemon.h"
#include "tests/bench/tiny_shape.h"
#include "tests/temp_dir.h"

namespace hearth::bench {
namespace {

namespace fs = std::filesystem;

constexpr int32_t kLong = 512;
constexpr int32_t kShort = 16;
constexpr int kClients = 8;
constexpr int kSystemPrompts = 4;

fs::path write_model(const models::ModelShape& shape, const fs::path& folder) {
  fs::create_directories(folder);
  const auto model = models::RandomModel::create(shape, "Q8_0", 3);
  HEARTH_CHECK(model.ok(), "{}", model.error().message);
  const fs::path path = folder / "bench.gguf";
  const auto written = models::write_random_model(*model, path, 2, nullptr);
  HEARTH_CHECK(written.ok(), "{}", written.error().message);
  return path;
}

ipc::GenerateRequest prompt_of(int32_t tokens, int32_t salt, int32_t max_tokens) {
  ipc::GenerateRequest request;
  request.model = "bench";
  for (int32_t i = 0; i < tokens; ++i) {
    request.prompt_ids.push_back(300 + (salt * 31 + i * 7 + i / 200) % 200);
  }
  request.max_tokens = max_tokens;
  request.temperature = 0;
  request.ignore_eos = true;
  request.speculate = false;
  request.cache = "memory";
  return request;
}

struct Seen {
  double first_ms = 0;
  std::vector<int32_t> ids;
  int32_t cached = 0;
};

Seen ask(ipc::Client& client, const ipc::GenerateRequest& request) {
  Seen seen;
  const int64_t begin_us = now_us();
  ipc::GenerateCallbacks callbacks;
  callbacks.on_delta = [&](const ipc::Delta& delta) {
    if (seen.ids.empty()) seen.first_ms = static_cast<double>(now_us() - begin_us) / 1000.0;
    seen.ids.insert(seen.ids.end(), delta.ids.begin(), delta.ids.end());
  };
  const Result<ipc::DoneEvent> done = client.generate(request, callbacks);
  HEARTH_CHECK(done.ok(), "{}", done.error().message);
  seen.cached = done->usage.cached_tokens;
  return seen;
}

ipc::ModelEntry entry_of(ipc::Client& client) {
  const Result<ipc::ModelsReply> reply = client.models();
  HEARTH_CHECK(reply.ok() && reply->models.size() == 1);
  return reply->models.front();
}

int64_t resident_bytes_of(const ipc::ModelEntry& entry) {
  if (entry.replicas.empty()) return resident_bytes(entry.worker_pid);
  int64_t bytes = 0;
  for (const ipc::ReplicaEntry& replica : entry.replicas) {
    bytes += resident_bytes(replica.worker_pid);
  }
  return bytes;
}

/// Waits until the workers have packed their weights: their memory no longer grows.
void settle(ipc::Client& client) {
  int64_t before = -1;
  for (int same = 0; same < 4;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
    const int64_t bytes = resident_bytes_of(entry_of(client));
    same = bytes <= before ? same + 1 : 0;
    before = std::max(before, bytes);
  }
}

void measure_sleep(const fs::path& dir, int rounds) {
  const Daemon daemon(dir, {});
  ipc::Client client = daemon.connect();
  const ipc::GenerateRequest known = prompt_of(kLong, 1, 8);
  std::map<std::string, std::vector<double>> seen;
  const std::vector<int32_t> text = ask(client, known).ids;
  settle(client);
  int32_t salt = 100;
  const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  const auto note = [&](const std::string& state) {
    seen[state + ", " + std::to_string(kShort) + " new tokens, ms"].push_back(
        ask(client, prompt_of(kShort, ++salt, 1)).first_ms);
    settle(client);
  };
  const auto note_known = [&](const std::string& state) {
    const Seen again = ask(client, known);
    HEARTH_CHECK(again.ids == text, "another text, {}", state);
    seen[state + ", known prompt, ms"].push_back(again.first_ms);
    seen[state + ", known prompt, cached tokens"].push_back(again.cached);
    settle(client);
  };
  const auto keep = [&] {
    const auto kept = client.unload({.model = "bench", .keep = true});
    HEARTH_CHECK(kept.ok() && kept->asleep, "not asleep");
    const ipc::ModelEntry entry = entry_of(client);
    seen["asleep, resident MiB"].push_back(mib(resident_bytes(entry.worker_pid)));
    seen["asleep, counted MiB"].push_back(mib(static_cast<int64_t>(entry.memory_bytes)));
  };
  for (int round = 0; round < rounds; ++round) {
    seen["awake, resident MiB"].push_back(mib(resident_bytes(entry_of(client).worker_pid)));
    seen["awake, counted MiB"].push_back(mib(static_cast<int64_t>(entry_of(client).memory_bytes)));
    note("awake");
    note_known("awake");
    keep();
    note("asleep");
    keep();
    note_known("asleep");
    HEARTH_CHECK(client.unload({.model = "bench"}).ok());
    note("unloaded");
    note_known("loaded again");
  }
  for (const auto& [what, values] : seen) {
    fmt::print("{:<48} {:9.1f}   ({:.1f} to {:.1f})\n", what, quantile(values, 0.5),
               quantile(values, 0), quantile(values, 1));
  }
}

/// Tokens of a client's request.
struct Talk {
  int32_t question = 32;  ///< after the system prompt
  int32_t answer = 32;
};

struct Load {
  int64_t output_tokens = 0;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
};

/// One client's requests, each with one of the system prompts and a text of its own.
Load send_requests(const Daemon& daemon, int number, int requests, const Talk& talk) {
  Load load;
  ipc::Client client = daemon.connect();
  std::mt19937 random(static_cast<uint32_t>(number));
  for (int i = 0; i < requests; ++i) {
    const auto system = static_cast<int32_t>(random() % kSystemPrompts);
    ipc::GenerateRequest request = prompt_of(kLong, system, talk.answer);
    for (int32_t k = 0; k < talk.question; ++k) {
      request.prompt_ids.push_back(static_cast<int32_t>(300 + random() % 200));
    }
    const auto done = client.generate(request, {});
    HEARTH_CHECK(done.ok(), "{}", done.error().message);
    load.output_tokens += done->usage.output_tokens;
    load.prompt_tokens += done->usage.prompt_tokens;
    load.cached_tokens += done->usage.cached_tokens;
  }
  return load;
}

struct Rate {
  double tokens_per_s = 0;
  double hits = 0;
};

Rate measure_load(const fs::path& dir, const std::string& devices, int requests, const Talk& talk) {
  const Daemon daemon(dir, {"devices.left.cores=[0]", "devices.right.cores=[1]",
                            "models.bench.devices=" + devices, "worker.prefix_store=false"});
  ipc::Client client = daemon.connect();
  HEARTH_CHECK(client.load({.model = "bench"}).ok());
  settle(client);
  std::vector<std::future<Load>> clients;
  const int64_t begin_us = now_us();
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(
        std::async(std::launch::async, send_requests, std::cref(daemon), i, requests, talk));
  }
  Load all;
  for (std::future<Load>& each : clients) {
    const Load load = each.get();
    all.output_tokens += load.output_tokens;
    all.prompt_tokens += load.prompt_tokens;
    all.cached_tokens += load.cached_tokens;
  }
  const double seconds = static_cast<double>(now_us() - begin_us) / 1e6;
  return {static_cast<double>(all.output_tokens) / seconds,
          static_cast<double>(all.cached_tokens) / static_cast<double>(all.prompt_tokens)};
}

void measure_replicas(const fs::path& dir, int rounds, int requests, const Talk& talk) {
  std::vector<double> speeds, hits;
  for (int round = 0; round < rounds; ++round) {
    const Rate one = measure_load(dir, R"(["left"])", requests, talk);
    const Rate two = measure_load(dir, R"(["left", "right"])", requests, talk);
    fmt::print(
        "one: {:.1f} tokens/s, hits {:.3f}   two: {:.1f} tokens/s, hits {:.3f}   "
        "{:.2f} x, hits {:.3f} x\n",
        one.tokens_per_s, one.hits, two.tokens_per_s, two.hits, two.tokens_per_s / one.tokens_per_s,
        two.hits / one.hits);
    speeds.push_back(two.tokens_per_s / one.tokens_per_s);
    hits.push_back(two.hits / one.hits);
  }
  fmt::print("two over one, medians: tokens/s {:.2f}, hits {:.3f}\n", quantile(speeds, 0.5),
             quantile(hits, 0.5));
}

int run(int argc, char** argv) {
  std::string_view shape_name;
  bool replicas = false, smoke = false;
  Talk talk;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--smoke") {
      smoke = true;
    } else if (flag == "--replicas") {
      replicas = true;
    } else if (flag == "--shape" && i + 1 < argc) {
      shape_name = argv[++i];
    } else if (flag == "--question" && i + 1 < argc) {
      talk.question = std::clamp(std::atoi(argv[++i]), 1, 4096);
    } else if (flag == "--answer" && i + 1 < argc) {
      talk.answer = std::clamp(std::atoi(argv[++i]), 1, 1024);
    } else {
      fmt::print(stderr,
                 "usage: hearth-residency-bench [--replicas [--question N] [--answer N]] "
                 "[--shape NAME | --smoke]\n");
      return 2;
    }
  }
  if (shape_name.empty()) shape_name = replicas ? "0.1B" : "S";
  const auto found = models::find_shape(shape_name);
  HEARTH_CHECK(found.ok(), "{}", found.error().message);
  const models::ModelShape shape = smoke ? kTinyShape : *found;
  const int rounds = smoke ? 1 : replicas ? 3 : 5;
  const tests::TempDir dir;
  const fs::path file = write_model(shape, dir.path() / "models");
  fmt::print("{} Q8_0, {} bytes\n", shape.name, fs::file_size(file));
  if (!replicas) measure_sleep(dir.path(), rounds);
  const bool two_cores = std::thread::hardware_concurrency() > 1;
  if (two_cores && (replicas || smoke)) {
    measure_replicas(dir.path(), rounds, smoke ? 1 : 12, talk);
  }
  return 0;
}

}  // namespace
}  // namespace hearth::bench

int main(int argc, char** argv) { return hearth::bench::run(argc, argv); }
