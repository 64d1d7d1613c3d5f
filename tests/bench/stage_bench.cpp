// hearth-stage-bench [--smoke | FILE.gguf [TOKENS [ROUNDS]]]: a model in two stages of one core
// each, and in two shares (models/split_model.h), in turn with the same model on one core, and on
// both as one device.
//
//   prefill   seconds until the first token of a prompt of TOKENS (default 2048), which nothing has
//             cached
//   decode    seconds per token of the 32 after it, one sequence
//   eight     tokens per second of eight sequences of 32 tokens each, after prompts of 128
//
// Prints each round and the medians, as ratios, too; checks that the tokens are equal. Never
// judges.
// --smoke: a tiny random model, for ctest.

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "kernels/base/check.h"
#include "models/random_model.h"
#include "models/split_model.h"
#include "models/staged_model.h"
#include "tests/bench/bench_model.h"
#include "tests/bench/tiny_shape.h"
#include "tests/temp_dir.h"

namespace hearth::bench {
namespace {

constexpr int32_t kDecoded = 32;
constexpr int32_t kEight = 8;

void use_cores(const std::vector<size_t>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const size_t core : cores) CPU_SET(core, &set);
  HEARTH_CHECK(::sched_setaffinity(0, sizeof set, &set) == 0, "core {}", cores.front());
}

std::vector<size_t> usable_cores() {
  cpu_set_t set;
  HEARTH_CHECK(::sched_getaffinity(0, sizeof set, &set) == 0);
  std::vector<size_t> cores;
  for (size_t core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

kernels::OpTable ops_of(int32_t num_threads) {
  return kernels::cpu_ops({.num_threads = num_threads, .variant = ""}).value();
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Rates {
  double prefill_s = 0, decode_s = 0, eight_per_s = 0;
  std::vector<int32_t> tokens;
};

class Runner {
 public:
  Runner(std::unique_ptr<models::Model> model, const kernels::OpTable& ops, int32_t tokens)
      : vocab_(model->info().vocab_size), tokens_(tokens) {
    engine::EngineConfig config;
    config.context_length = tokens + 2 * kDecoded;
    config.scheduler.max_seqs = kEight;
    config.prefix_cache = false;
    config.speculation.enabled = false;
    config.kv_bytes = engine::kv_bytes_for(
        model->info(), config, 2 * kEight * (config.context_length / config.block_size + 1));
    auto made = engine::Engine::create(config, ops, std::move(model), clock_);
    HEARTH_CHECK(made.ok(), "{}", made.error().message);
    engine_ = std::move(made).value();
    engine_->warm_up(false);
  }

  int32_t num_layers() const { return engine_->model_info().num_layers; }

  Rates measure() {
    Rates rates;
    auto begin = std::chrono::steady_clock::now();
    post(tokens_, kDecoded);
    run([&](int32_t token) {
      if (rates.tokens.empty()) {
        rates.prefill_s = seconds_since(begin);
        begin = std::chrono::steady_clock::now();
      }
      rates.tokens.push_back(token);
    });
    rates.decode_s = seconds_since(begin) / (kDecoded - 1);
    for (int32_t i = 0; i < kEight; ++i) post(std::min(tokens_, 128), kDecoded);
    int32_t count = 0;
    run([&](int32_t) {
      if (count++ == kEight) begin = std::chrono::steady_clock::now();
    });
    rates.eight_per_s = (count - kEight) / seconds_since(begin);
    return rates;
  }

 private:
  void post(int32_t prompt_tokens, int32_t max_tokens) {
    engine::Request request;
    request.id = ++last_id_;
    request.owner = "bench";
    request.max_tokens = max_tokens;
    request.sampling.temperature = 0;
    for (int32_t i = 0; i < prompt_tokens; ++i) {
      request.prompt.push_back((i * 7919 + static_cast<int32_t>(last_id_ % 8)) % vocab_);
    }
    engine_->inbox().post(std::move(request));
  }

  template <typename OnToken>
  void run(const OnToken& on_token) {
    while (engine_->step()) {
      for (const auto& events : engine_->outbox().drain()) {
        for (const engine::EngineEvent& event : events) {
          HEARTH_CHECK(!std::holds_alternative<engine::RequestFailedEvent>(event));
          if (const auto* token = std::get_if<engine::TokenEvent>(&event)) on_token(token->token);
        }
      }
    }
  }

  const int32_t vocab_, tokens_;
  SteadyClock clock_;
  std::unique_ptr<engine::Engine> engine_;
  engine::RequestId last_id_ = 0;
};

models::GgufFile open(const std::filesystem::path& path) {
  auto file = models::GgufFile::open(path);
  HEARTH_CHECK(file.ok(), "{}", file.error().message);
  file->set_fingerprint("bench");
  return std::move(file).value();
}

models::StageTable table_on(size_t core) {
  models::StageTable table{"second", {}, std::make_shared<kernels::OpThread>()};
  table.thread->run([&] {
    use_cores({core});
    table.ops = ops_of(1);
  });
  return table;
}

std::unique_ptr<models::Model> in_shares(const std::filesystem::path& path,
                                         const kernels::OpTable& ops, size_t second_core) {
  auto model = models::load_split_model(open(path),
                                        {{"first", ops, nullptr}, table_on(second_core)}, nullptr);
  HEARTH_CHECK(model.ok(), "{}", model.error().message);
  return std::move(model).value();
}

std::unique_ptr<models::Model> in_stages(const std::filesystem::path& path,
                                         const kernels::OpTable& ops, int32_t layers,
                                         size_t second_core) {
  models::StageTable second = table_on(second_core);
  std::vector<models::Stage> stages = {{{"first", ops, nullptr}, {0, layers / 2}},
                                       {std::move(second), {layers / 2, layers}}};
  auto model = models::load_staged_model(open(path), std::move(stages), nullptr);
  HEARTH_CHECK(model.ok(), "{}", model.error().message);
  return std::move(model).value();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void compare(const std::filesystem::path& path, int32_t tokens, int32_t rounds) {
  std::vector<size_t> cores = usable_cores();
  cores.resize(2, cores.front());
  use_cores(cores);
  const kernels::OpTable both_ops = ops_of(2);
  Runner both(bench_model(path, both_ops), both_ops, tokens);
  use_cores({cores[0]});
  const kernels::OpTable ops = ops_of(1);
  Runner one(bench_model(path, ops), ops, tokens);
  Runner two(in_stages(path, ops, one.num_layers(), cores[1]), ops, tokens);
  Runner shared(in_shares(path, ops, cores[1]), ops, tokens);
  std::vector<double> prefill, decode, eight, shared_prefill, shared_decode, shared_eight;
  for (int32_t round = 0; round < rounds; ++round) {
    const Rates alone = one.measure(), staged = two.measure(), split = shared.measure();
    use_cores(cores);
    const Rates together = both.measure();
    use_cores({cores[0]});
    HEARTH_CHECK(alone.tokens == staged.tokens, "other tokens in stages");
    HEARTH_CHECK(alone.tokens == split.tokens, "other tokens in shares");
    fmt::print(
        "one device of two cores: prefill {:.3f} s, decode {:.2f} ms, eight {:.1f} tokens/s\n",
        together.prefill_s, together.decode_s * 1e3, together.eight_per_s);
    prefill.push_back(alone.prefill_s / staged.prefill_s);
    decode.push_back(alone.decode_s / staged.decode_s);
    eight.push_back(staged.eight_per_s / alone.eight_per_s);
    fmt::print("one core:   prefill {:.3f} s, decode {:.2f} ms, eight {:.1f} tokens/s\n",
               alone.prefill_s, alone.decode_s * 1e3, alone.eight_per_s);
    fmt::print("two stages: prefill {:.3f} s, decode {:.2f} ms, eight {:.1f} tokens/s\n",
               staged.prefill_s, staged.decode_s * 1e3, staged.eight_per_s);
    shared_prefill.push_back(alone.prefill_s / split.prefill_s);
    shared_decode.push_back(alone.decode_s / split.decode_s);
    shared_eight.push_back(split.eight_per_s / alone.eight_per_s);
    fmt::print("two shares: prefill {:.3f} s, decode {:.2f} ms, eight {:.1f} tokens/s\n",
               split.prefill_s, split.decode_s * 1e3, split.eight_per_s);
  }
  fmt::print("times as fast in two stages: prefill {:.2f}, decode {:.2f}, eight {:.2f}\n",
             median(prefill), median(decode), median(eight));
  fmt::print("times as fast in two shares: prefill {:.2f}, decode {:.2f}, eight {:.2f}\n",
             median(shared_prefill), median(shared_decode), median(shared_eight));
}

void smoke() {
  const tests::TempDir folder;
  const auto path = folder.path() / "tiny.gguf";
  const auto model = models::RandomModel::create(kTinyShape, kernels::DType::kQ8_0, 1);
  HEARTH_CHECK(model.ok(), "{}", model.error().message);
  HEARTH_CHECK(models::write_random_model(*model, path, 1, nullptr).ok());
  compare(path, 100, 1);
}

}  // namespace
}  // namespace hearth::bench

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() == 1 && args[0] == "--smoke") {
    hearth::bench::smoke();
    return 0;
  }
  if (args.empty() || args.size() > 3) {
    fmt::print(stderr, "usage: hearth-stage-bench [--smoke | FILE.gguf [TOKENS [ROUNDS]]]\n");
    return 2;
  }
  hearth::bench::compare(args[0], args.size() > 1 ? std::atoi(args[1].c_str()) : 2048,
                         args.size() > 2 ? std::atoi(args[2].c_str()) : 3);
  return 0;
}
