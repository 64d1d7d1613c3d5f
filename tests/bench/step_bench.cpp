// hearth-step-bench: what a step costs in addition to its ops, and what it costs to draw a token.
//
//   overhead  engine steps of 8 decoding sequences over a model that computes nothing: commands,
//             scheduling, index buffers, appending tokens, events; with greedy sampling of 64
//             tokens, which is next to nothing
//   watching  what it costs the engine's thread to be watched: steps of 2 ms that compute nothing,
//             a snapshot asked for every 50 of them (ten a second), in turn without watchers
//             and with one; for a pool of some, and of 100,000 blocks
//   sampling  one draw from a row of 4,096 and of 128,256 logits, under the usual settings, for
//             logits that are peaked (as a trained model's) and flat (as random weights')
//   growing   decode steps of one sequence whose blocks take memory as they are first used, in turn
//             with the same steps over a pool that is still backed
//
//   hearth-step-bench [--smoke | --watching | --growing FILE.gguf]
// Prints medians and percentiles of one thread; never judges. --smoke: tiny counts, for ctest.

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <random>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "engine/sampling/sampler.h"
#include "engine/steps/step_record.h"
#include "kernels/base/check.h"
#include "tests/bench/bench_model.h"

namespace hearth::bench {
namespace {

double us_since(std::chrono::steady_clock::time_point start) {
  const auto passed = std::chrono::steady_clock::now() - start;
  return std::chrono::duration<double, std::micro>(passed).count();
}

/// Of this thread, so that other programs do not lengthen it.
double cpu_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

/// Has the KV shape of a 1.2 B model and always generates token 1.
class IdleModel final : public models::Model {
 public:
  /// `small_kv`: tiny blocks, so that there can be many. `step_us`: duration of each forward pass.
  explicit IdleModel(bool small_kv = false, double step_us = 0, double* forward_us = nullptr)
      : step_us_(step_us), forward_us_(forward_us) {
    info_.name = info_.fingerprint = "idle";
    info_.context_length = 8192;
    info_.vocab_size = 64;
    models::LayerGroup group;
    group.num_layers = small_kv ? 1 : 16;
    group.kv = kernels::KvShape::even(small_kv ? 1 : 8, 64);
    info_.groups = {group};
  }
  const models::ModelInfo& info() const override { return info_; }
  Result<void> reserve(int32_t, int32_t) override { return {}; }
  uint64_t activation_bytes(int32_t, int32_t) const override { return 0; }
  void forward(const models::StepArgs& args) override {
    const double start = cpu_us();
    while (step_us_ > 0 && cpu_us() - start < step_us_) {
    }
    if (forward_us_ != nullptr) *forward_us_ = cpu_us() - start;
    for (int32_t i = 0; i < args.batch->num_outputs; ++i) args.logits.row<float>(i)[1] = 1;
  }

 private:
  models::ModelInfo info_;
  double step_us_;
  double* forward_us_;  ///< receives the duration of each pass; null: unused
};

void print(std::string_view what, std::vector<double> us) {
  std::ranges::sort(us);
  const auto at = [&](double share) {
    return us[std::min(us.size() - 1, static_cast<size_t>(share * static_cast<double>(us.size())))];
  };
  fmt::print("{:44} p50 {:8.1f} us  p90 {:8.1f}  p99 {:8.1f}  of {}\n", what, at(0.5), at(0.9),
             at(0.99), us.size());
}

/// An engine that decodes `sequences` forever, with all prompts computed.
std::unique_ptr<engine::Engine> decoding_engine(const engine::EngineConfig& config,
                                                std::unique_ptr<IdleModel> model,
                                                const Clock& clock, int32_t sequences,
                                                int32_t prompt_tokens) {
  static const auto ops = kernels::cpu_ops({.num_threads = 1, .variant = ""});
  HEARTH_CHECK(ops.ok(), "{}", ops.error().message);
  auto made = engine::Engine::create(config, *ops, std::move(model), clock);
  HEARTH_CHECK(made.ok(), "{}", made.error().message);
  std::unique_ptr<engine::Engine> engine = std::move(made).value();
  for (int32_t i = 0; i < sequences; ++i) {
    engine::Request request;
    request.id = static_cast<engine::RequestId>(i + 1);
    request.owner = "bench";
    request.prompt.assign(static_cast<size_t>(prompt_tokens), i + 2);
    request.max_tokens = 8192 - prompt_tokens;
    request.sampling.temperature = 0;
    engine->inbox().post(std::move(request));
  }
  const auto decoded = [&engine] { return engine->snapshot().decode_tokens_total; };
  for (int32_t full = 0; full < 8;) {
    const uint64_t before = decoded();
    engine->step();
    full = decoded() - before == static_cast<uint64_t>(sequences) ? full + 1 : 0;
  }
  return engine;
}

void measure_overhead(int32_t sequences, int32_t prompt_tokens, int32_t steps) {
  engine::EngineConfig config;
  config.kv_bytes = uint64_t{1} << 30;
  config.prefix_cache = false;
  config.speculation.enabled = false;
  SteadyClock clock;
  const auto engine =
      decoding_engine(config, std::make_unique<IdleModel>(), clock, sequences, prompt_tokens);
  const auto decoded = [&engine] { return engine->snapshot().decode_tokens_total; };
  std::vector<double> us;
  for (int32_t i = 0; i < steps; ++i) {
    const uint64_t before = decoded();
    const auto start = std::chrono::steady_clock::now();
    engine->step();
    us.push_back(us_since(start));
    HEARTH_CHECK(decoded() == before + static_cast<uint64_t>(sequences), "{}", i);
    engine->outbox().drain();
  }
  print(fmt::format("step of {} sequences after {} tokens", sequences, prompt_tokens),
        std::move(us));
}

void measure_watching(int32_t blocks, int32_t sequences, int32_t rounds, int32_t steps) {
  constexpr double kStepUs = 2000;
  constexpr int32_t kSnapshotEvery = 50;
  engine::EngineConfig config;
  config.kv_bytes = static_cast<uint64_t>(blocks) * 16 * 64 * 2 * 2;  // 16 tokens of K and V in f16
  config.speculation.enabled = false;
  SteadyClock clock;
  double forward_us = 0;
  const auto engine = decoding_engine(
      config, std::make_unique<IdleModel>(true, kStepUs, &forward_us), clock, sequences, 256);
  std::vector<double> us[2];
  for (int32_t round = 0; round < rounds; ++round) {
    for (const int watched : {0, 1}) {
      engine->watch_port().wanted = watched == 1;
      double sum = 0;
      for (int32_t i = 0; i < steps; ++i) {
        if (i % kSnapshotEvery == 0) engine->inbox().post(engine::WantSnapshot{});
        const double start = cpu_us();
        engine->step();
        sum += cpu_us() - start - forward_us;
        engine->outbox().drain();
        engine->watch_port().out.drain();
      }
      us[watched].push_back(sum / steps);
    }
  }
  const auto median = [](std::vector<double>& values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
  };
  const double off = median(us[0]), on = median(us[1]);
  fmt::print(
      "{:6} blocks, {} sequences: in addition to its 2 ms a step takes {:.2f} us unwatched, {:.2f} "
      "us "
      "watched: {:.3f} % more; processor time, medians of {} rounds of {} "
      "steps\n",
      engine->snapshot().kv_blocks_total.front(), sequences, off, on, (on - off) / kStepUs * 100,
      rounds, steps);
}

std::unique_ptr<models::Model> model_of(const char* file, const kernels::OpTable& ops) {
  if (file == nullptr) return std::make_unique<IdleModel>(false, 1000);
  return bench_model(file, ops);
}

/// `file` null: the model that computes nothing.
void measure_growing(const char* file, int32_t rounds, int32_t tokens) {
  const auto ops = kernels::cpu_ops({});
  HEARTH_CHECK(ops.ok(), "{}", ops.error().message);
  engine::EngineConfig config;
  config.prefix_cache = false;
  config.speculation.enabled = false;
  config.scheduler.max_seqs = 2;
  config.kv_floor_bytes = 0;
  SteadyClock clock;
  auto made = engine::Engine::create(config, *ops, model_of(file, *ops), clock);
  HEARTH_CHECK(made.ok(), "{}", made.error().message);
  engine::Engine& engine = **made;
  const auto bound = [&engine](uint64_t bytes) {
    engine.inbox().post(engine::KvBound{bytes});
    engine.step();
  };
  std::vector<double> us[2];
  double grown[2] = {};
  for (int32_t round = 0; round < rounds; ++round) {
    for (const int warm : {0, 1}) {
      if (warm == 0) bound(0);
      bound(UINT64_MAX);
      const uint64_t before = engine.snapshot().kv_backed_bytes;
      engine::Request request;
      request.id = static_cast<engine::RequestId>(2 * round + warm + 1);
      request.owner = "bench";
      request.prompt.assign(64, 2);
      request.max_tokens = tokens;
      request.sampling.temperature = 0;
      engine.inbox().post(std::move(request));
      while (true) {
        const uint64_t decoded = engine.snapshot().decode_tokens_total;
        const auto start = std::chrono::steady_clock::now();
        if (!engine.step()) break;
        const double step_us = us_since(start);
        if (engine.snapshot().decode_tokens_total > decoded) us[warm].push_back(step_us);
        engine.outbox().drain();
      }
      grown[warm] += static_cast<double>(engine.snapshot().kv_backed_bytes - before);
    }
  }
  for (const int warm : {0, 1}) {
    print(fmt::format("decode, {}, {:.1f} MiB taken a round", warm == 1 ? "warm" : "growing",
                      grown[warm] / rounds / (1 << 20)),
          us[warm]);
  }
  const auto p99 = [](std::vector<double>& values) {
    std::ranges::sort(values);
    return values[values.size() * 99 / 100];
  };
  fmt::print("p99 growing over warm: {:.3f}\n", p99(us[0]) / p99(us[1]));
}

std::vector<float> logits_of(size_t vocab, bool peaked) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, peaked ? 2.5f : 0.6f);
  std::vector<float> logits(vocab);
  for (float& logit : logits) logit = normal(random);
  if (!peaked) return logits;
  for (size_t i = 0; i < 30; ++i) {
    logits[i * 4001 % vocab] = 16 - 0.3f * static_cast<float>(i);
  }
  return logits;
}

void measure_sampling(size_t vocab, int32_t rounds) {
  struct Case {
    std::string_view name;
    float temperature;
    int32_t top_k;
    float top_p, min_p;
  };
  const Case cases[] = {{"greedy", 0, 0, 1, 0},
                        {"temperature 0.8", 0.8f, 0, 1, 0},
                        {"temperature 0.8, top-k 40", 0.8f, 40, 1, 0},
                        {"temperature 0.8, top-p 0.95", 0.8f, 0, 0.95f, 0},
                        {"temperature 0.8, min-p 0.05", 0.8f, 0, 1, 0.05f},
                        {"0.8, top-k 40, top-p 0.95, min-p 0.05", 0.8f, 40, 0.95f, 0.05f}};
  for (const bool peaked : {true, false}) {
    std::vector<float> logits = logits_of(vocab, peaked);
    engine::Sampler sampler(static_cast<int32_t>(vocab));
    for (const Case& c : cases) {
      engine::SamplingParams params;
      params.temperature = c.temperature;
      params.top_k = c.top_k;
      params.top_p = c.top_p;
      params.min_p = c.min_p;
      params.typical_p = 1;
      params.repetition_penalty = 1;
      std::vector<double> us;
      for (int32_t i = 0; i < rounds; ++i) {
        engine::SampleArgs args;
        args.params = &params;
        args.position = i;
        const auto start = std::chrono::steady_clock::now();
        const auto sampled = sampler.sample(logits, args);
        us.push_back(us_since(start));
        HEARTH_CHECK(sampled.ok(), "{}", c.name);
      }
      print(fmt::format("{}: {}, {}", vocab, c.name, peaked ? "peaked" : "flat"), std::move(us));
    }
  }
}

}  // namespace
}  // namespace hearth::bench

int main(int argc, char** argv) {
  const bool smoke = argc == 2 && std::string_view(argv[1]) == "--smoke";
  const bool watching = argc == 2 && std::string_view(argv[1]) == "--watching";
  const bool growing = argc == 3 && std::string_view(argv[1]) == "--growing";
  if (argc > 1 && !smoke && !watching && !growing) {
    fmt::print(stderr, "usage: hearth-step-bench [--smoke | --watching | --growing FILE.gguf]\n");
    return 2;
  }
  if (growing) {
    hearth::bench::measure_growing(argv[2], 5, 1000);
    return 0;
  }
  if (!watching) {
    hearth::bench::measure_overhead(8, smoke ? 32 : 1024, smoke ? 20 : 2000);
    hearth::bench::measure_overhead(1, smoke ? 32 : 1024, smoke ? 20 : 2000);
    for (const size_t vocab : {size_t{4096}, size_t{128256}}) {
      hearth::bench::measure_sampling(vocab, smoke ? 3 : 300);
    }
  }
  if (smoke) {
    hearth::bench::measure_watching(2048, 4, 1, 3);
    hearth::bench::measure_growing(nullptr, 1, 100);
  } else {
    hearth::bench::measure_watching(4096, 8, 5, 300);
    hearth::bench::measure_watching(100'000, 16, 5, 300);
  }
  return 0;
}
