// hearth-step-bench: what a step costs beside its ops, and what it costs to draw a token.
//
//   overhead  engine steps of 8 decoding sequences over a model that computes nothing: commands,
//             scheduling, index buffers, appending tokens, events; with greedy sampling of 64
//             tokens, which is next to nothing
//   sampling  one draw from a row of 128,256 logits, under the usual settings, for logits that are
//             peaked (as a trained model's) and flat (as random weights')
//
//   hearth-step-bench [--smoke]
// Prints medians and percentiles of one thread; never judges. --smoke: tiny counts, for ctest.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <random>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "engine/sampler.h"
#include "kernels/base/check.h"

namespace hearth::bench {
namespace {

/// Has the KV shape of a 1.2 B model, and says token 1 whatever it is asked.
class IdleModel final : public models::Model {
 public:
  IdleModel() {
    info_.name = info_.fingerprint = "idle";
    info_.context_length = 8192;
    info_.vocab_size = 64;
    models::LayerGroup group;
    group.num_layers = 16;
    group.num_kv_heads = 8;
    group.head_dim = 64;
    info_.groups = {group};
  }
  const models::ModelInfo& info() const override { return info_; }
  Result<void> reserve(int32_t, int32_t) override { return {}; }
  uint64_t activation_bytes(int32_t, int32_t) const override { return 0; }
  void forward(const models::StepArgs& args) override {
    for (int32_t i = 0; i < args.batch->num_outputs; ++i) args.logits.row<float>(i)[1] = 1;
  }

 private:
  models::ModelInfo info_;
};

double us_since(std::chrono::steady_clock::time_point start) {
  const auto passed = std::chrono::steady_clock::now() - start;
  return std::chrono::duration<double, std::micro>(passed).count();
}

void print(std::string_view what, std::vector<double> us) {
  std::ranges::sort(us);
  const auto at = [&](double share) {
    return us[std::min(us.size() - 1, static_cast<size_t>(share * static_cast<double>(us.size())))];
  };
  fmt::print("{:44} p50 {:8.1f} us  p90 {:8.1f}  p99 {:8.1f}  of {}\n", what, at(0.5), at(0.9),
             at(0.99), us.size());
}

void measure_overhead(int32_t sequences, int32_t prompt_tokens, int32_t steps) {
  auto ops = kernels::cpu_ops({.num_threads = 1, .variant = ""});
  HEARTH_CHECK(ops.ok(), "{}", ops.error().message);
  engine::EngineConfig config;
  config.kv_bytes = uint64_t{1} << 30;
  config.prefix_cache = false;
  config.speculation.enabled = false;
  SteadyClock clock;
  auto made = engine::Engine::create(config, *ops, std::make_unique<IdleModel>(), clock);
  HEARTH_CHECK(made.ok(), "{}", made.error().message);
  engine::Engine& engine = **made;
  for (int32_t i = 0; i < sequences; ++i) {
    engine::Request request;
    request.id = static_cast<engine::RequestId>(i + 1);
    request.owner = "bench";
    request.prompt.assign(static_cast<size_t>(prompt_tokens), i + 2);
    request.max_tokens = steps + 100;
    request.sampling.temperature = 0;
    engine.inbox().post(std::move(request));
  }
  const auto decoded = [&engine] { return engine.snapshot().decode_tokens_total; };
  // Until all prompts are in: some steps in a row that decode every sequence.
  for (int32_t full = 0; full < 8;) {
    const uint64_t before = decoded();
    engine.step();
    full = decoded() - before == static_cast<uint64_t>(sequences) ? full + 1 : 0;
  }
  std::vector<double> us;
  for (int32_t i = 0; i < steps; ++i) {
    const uint64_t before = decoded();
    const auto start = std::chrono::steady_clock::now();
    engine.step();
    us.push_back(us_since(start));
    HEARTH_CHECK(decoded() == before + static_cast<uint64_t>(sequences), "{}", i);
    engine.outbox().drain();
  }
  print(fmt::format("step of {} sequences behind {} tokens", sequences, prompt_tokens),
        std::move(us));
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
      print(fmt::format("{}, {}", c.name, peaked ? "peaked" : "flat"), std::move(us));
    }
  }
}

}  // namespace
}  // namespace hearth::bench

int main(int argc, char** argv) {
  const bool smoke = argc == 2 && std::string_view(argv[1]) == "--smoke";
  if (argc > 1 && !smoke) {
    fmt::print(stderr, "usage: hearth-step-bench [--smoke]\n");
    return 2;
  }
  hearth::bench::measure_overhead(8, smoke ? 32 : 1024, smoke ? 20 : 2000);
  hearth::bench::measure_overhead(1, smoke ? 32 : 1024, smoke ? 20 : 2000);
  hearth::bench::measure_sampling(smoke ? 1000 : 128256, smoke ? 3 : 300);
  return 0;
}
