// hearth-attack-bench: what one user can do to another, with the real hearthd and worker of this
// build and the bundled model `tales`. One user asks for a stream after the other and, at the same
// time, for short answers; the other attacks (attacks.cpp). Printed for each attack: the first
// user's first token and worst gap between two parts of a stream, as times of those without an
// attack, and by how much the broker's resident memory grows beyond what the first user alone made
// it, at most during the attack and 10 s after its end.
//
//   hearth-attack-bench [--smoke] [--model FILE] [ATTACK]
//   hearth-attack-bench --against RUNTIME_DIR [ATTACK]
// Wants root, to be two users; without it both are one user, which is printed. --smoke: a
// moment each, for ctest. --model: FILE in place of the bundled model. Prints; never judges.
// --against measures nothing: it attacks the daemon of that directory, in this way or in all ways
// at once, until it is killed (tests/soak/siege.py).

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <list>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ipc/schema/messages.h"
#include "kernels/base/check.h"
#include "tests/bench/attacks.h"
#include "tests/bench/bench_daemon.h"
#include "tests/bench/tls_attacks.h"
#include "tests/other_user.h"
#include "tests/paths.h"
#include "tests/temp_dir.h"

namespace hearth::bench {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

struct Lengths {
  milliseconds measured{8'000};
  milliseconds after{10'000};
  int rounds = 1;
};

ipc::GenerateRequest request_for(int32_t max_tokens, uint64_t seed) {
  ipc::GenerateRequest request;
  request.model = "tales";
  request.prompt = "Once upon a time";
  request.prompt_as = "text";
  request.max_tokens = max_tokens;
  request.seed = seed;
  request.ignore_eos = true;
  request.cache = "off";
  return request;
}

/// What the first user measures.
struct Seen {
  std::vector<double> first_token_ms;
  std::vector<double> gap_ms;  ///< between two parts of a stream
  int failed = 0;
  int64_t most_bytes = 0;  ///< of the broker

  double p99_ms() const { return quantile(first_token_ms, 0.99); }
  double worst_gap_ms() const { return gap_ms.empty() ? 0 : *std::ranges::max_element(gap_ms); }
};

/// Deltas of requests, one after the other, until `stop`.
template <class OnDelta>
int ask_until(const Daemon& daemon, const std::atomic<bool>& stop, int32_t max_tokens,
              OnDelta on_delta) {
  ipc::Client client = daemon.connect();
  int failed = 0;
  for (uint64_t seed = 1; !stop; ++seed) {
    const int64_t begin_us = now_us();
    int64_t last_us = 0;
    ipc::GenerateCallbacks callbacks;
    callbacks.on_delta = [&](const ipc::Delta&) {
      const int64_t at_us = now_us();
      on_delta(begin_us, last_us, at_us);
      last_us = at_us;
    };
    if (!client.generate(request_for(max_tokens, seed), callbacks).ok()) ++failed;
  }
  return failed;
}

Seen measure(const Daemon& daemon, milliseconds length) {
  Seen seen;
  std::atomic<bool> stop = false;
  const auto ms = [](int64_t from, int64_t to) { return static_cast<double>(to - from) / 1000.0; };
  int failed_short = 0, failed_long = 0;
  std::thread streams([&] {
    failed_long = ask_until(daemon, stop, 300, [&](int64_t, int64_t last_us, int64_t at_us) {
      if (last_us > 0) seen.gap_ms.push_back(ms(last_us, at_us));
    });
  });
  std::thread answers([&] {
    failed_short =
        ask_until(daemon, stop, 2, [&](int64_t begin_us, int64_t last_us, int64_t at_us) {
          if (last_us == 0) seen.first_token_ms.push_back(ms(begin_us, at_us));
        });
  });
  const int64_t end_us = now_us() + std::chrono::microseconds(length).count();
  while (now_us() < end_us) {
    seen.most_bytes = std::max(seen.most_bytes, resident_bytes(daemon.pid()));
    std::this_thread::sleep_for(milliseconds(10));
  }
  stop = true;
  streams.join();
  answers.join();
  seen.failed = failed_short + failed_long;
  return seen;
}

double mib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

void print(std::string_view name, const Seen& seen, const Seen& calm, int64_t idle,
           std::optional<int64_t> after) {
  fmt::print(
      "{:<14} first token p50 {:6.2f} p99 {:7.2f} ms ({:5.2f} x, {} answers), worst gap {:7.2f} ms "
      "({:5.2f} x), broker +{:.1f} MiB",
      name, quantile(seen.first_token_ms, 0.5), seen.p99_ms(), seen.p99_ms() / calm.p99_ms(),
      seen.first_token_ms.size(), seen.worst_gap_ms(), seen.worst_gap_ms() / calm.worst_gap_ms(),
      mib(seen.most_bytes - idle));
  if (after) fmt::print(", later +{:.1f} MiB", mib(*after - idle));
  fmt::print("{}\n", seen.failed > 0 ? fmt::format(", {} FAILED", seen.failed) : "");
  std::fflush(stdout);
}

int run(const Lengths& lengths, const fs::path& model, const std::string& only) {
  if (::geteuid() != 0) fmt::print("not root: both users are one\n");
  const tests::TempDir temp;
  fs::create_directories(temp.path() / "models");
  fs::copy_file(model, temp.path() / "models/tales.gguf");
  const Daemon daemon(temp.path(), write_tls_door(temp.path() / "run", free_port()));
  tests::let_other_user_in(temp.path(), daemon.runtime());
  (void)measure(daemon, lengths.measured / 4);  // loads the model
  for (const Attack& attack : attacks()) {
    if (!only.empty() && only != attack.name) continue;
    // Before each: the machine's speed changes meanwhile.
    const Seen calm = measure(daemon, lengths.measured);
    const int64_t idle = resident_bytes(daemon.pid());
    print("undisturbed", calm, calm, idle, std::nullopt);
    Seen seen;
    {
      const Attacker attacker(attack, daemon.runtime());
      std::this_thread::sleep_for(lengths.measured / 8);
      seen = measure(daemon, lengths.measured);
    }
    std::this_thread::sleep_for(lengths.after);
    print(attack.name, seen, calm, idle, resident_bytes(daemon.pid()));
  }
  return 0;
}

int attack_until_killed(const fs::path& runtime, const std::string& only) {
  std::list<Attacker> attackers;
  for (const Attack& attack : attacks()) {
    if (attack.over_tls && tls_port(runtime) == 0) continue;
    if (only.empty() || only == attack.name) attackers.emplace_back(attack, runtime);
  }
  int status = 0;
  const pid_t ended = ::wait(&status);
  fmt::print(stderr, "the attack of process {} ended, status {}\n", ended, status);
  return 1;
}

}  // namespace
}  // namespace hearth::bench

int main(int argc, char** argv) {
  hearth::bench::Lengths lengths;
  std::string only, against;
  std::string model = hearth::tests::source_dir() + "/models/demo/tales.gguf";
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto known = hearth::bench::attacks();
    if (word == "--smoke") {
      lengths = {.measured = std::chrono::milliseconds(300),
                 .after = std::chrono::milliseconds(100)};
    } else if (word == "--against" && i + 1 < argc) {
      against = argv[++i];
    } else if (word == "--model" && i + 1 < argc) {
      model = argv[++i];
    } else if (std::ranges::any_of(known, [&](const auto& each) { return word == each.name; })) {
      only = word;
    } else {
      fmt::print(stderr,
                 "usage: hearth-attack-bench [--smoke] [--model FILE] [ATTACK]\n"
                 "       hearth-attack-bench --against RUNTIME_DIR [ATTACK]\n");
      for (const auto& each : known) fmt::print(stderr, "  {:<14} {}\n", each.name, each.what);
      return 2;
    }
  }
  if (!against.empty()) return hearth::bench::attack_until_killed(against, only);
  return hearth::bench::run(lengths, model, only);
}
