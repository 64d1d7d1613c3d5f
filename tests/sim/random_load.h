#pragma once
// Engine settings and requests from a seed, for simulations of random loads.

#include <cstdint>
#include <initializer_list>
#include <random>

#include "simulation.h"

namespace hearth::tests {

/// By how much fewer seeds a sanitized build runs.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int kSlowdown = 10;
#else
inline constexpr int kSlowdown = 1;
#endif

class RandomLoad {
 public:
  explicit RandomLoad(uint64_t seed) : random_(seed) {}

  int32_t pick(int32_t min, int32_t max) {
    return std::uniform_int_distribution<int32_t>(min, max)(random_);
  }
  bool chance(double p) { return std::bernoulli_distribution(p)(random_); }
  template <typename T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[pick(0, static_cast<int32_t>(values.size()) - 1)];
  }

  engine::EngineConfig engine_config() {
    engine::EngineConfig config;
    config.block_size = one_of({16, 16, 32});
    config.prefix_cache = chance(0.85);
    config.kv_floor_bytes = 0;
    config.published = engine::PublishedScopes::kAll;
    engine::SchedulerConfig& s = config.scheduler;
    s.policy =
        chance(0.2) ? engine::SchedulerPolicy::kStatic : engine::SchedulerPolicy::kContinuous;
    s.chunked_prefill = chance(0.8);
    s.max_seqs = one_of({1, 2, 3, 5, 8, 16});
    s.max_step_tokens = one_of({1, 3, 16, 33, 64, 512});
    s.max_queue = 256;
    s.waiting_served_ratio = one_of({0.0, 0.3, 1.2});
    s.aging_us = one_of<int64_t>({20'000, 1'000'000});
    s.prefill_step_us = one_of<int64_t>({2'000, 250'000});
    return config;
  }

  engine::SpeculationConfig speculation_config() {
    engine::SpeculationConfig config;
    config.enabled = chance(0.7);
    config.lookup = chance(0.8);
    config.max_width = pick(1, 8);
    config.fixed_width = chance(0.7) ? pick(1, 8) : 0;
    return config;
  }

  FakeModelConfig model_config() {
    FakeModelConfig config;
    config.context_length = 256;
    if (chance(0.15)) config.windows = {0, 40};
    if (chance(0.1)) config.windows = {24};
    if (chance(0.05)) config.windows = {0, 0};
    return config;
  }

  /// Every third seed has a state, next to what it has else, or alone.
  void add_states(FakeModelConfig& config) {
    if (!chance(0.35)) return;
    if (chance(0.2)) config.windows.clear();
    config.windows.push_back(kRecurrent);
  }

  engine::Request request(engine::RequestId id) {
    engine::Request r;
    r.id = id;
    r.owner = one_of({"uid:1", "uid:2", "uid:3"});
    r.cache_salt = chance(0.9) ? "shared" : r.owner;
    r.priority = one_of(
        {engine::Priority::kInteractive, engine::Priority::kNormal, engine::Priority::kBatch});
    // One of a few texts, cut somewhere, then something of its own.
    const int32_t text = pick(0, 2);
    const int32_t shared = one_of({0, 5, 16, 40, 64, 100});
    for (int32_t i = 0; i < shared; ++i) r.prompt.push_back((text * 17 + i * 5) % 61);
    const int32_t own = pick(shared == 0 ? 1 : 0, 30);
    for (int32_t i = 0; i < own; ++i) r.prompt.push_back(pick(0, 60));
    r.max_tokens = pick(1, chance(0.2) ? 60 : 15);
    r.n = chance(0.2) ? pick(2, 4) : 1;
    if (chance(0.5)) r.stop_ids = {pick(0, 60), pick(0, 60)};
    r.min_tokens = chance(0.2) ? pick(0, r.max_tokens) : 0;
    r.use_prefix_cache = chance(0.9);
    r.sampling.temperature = chance(0.4) ? 0.0f : 0.9f;
    r.sampling.seed = static_cast<uint64_t>(pick(0, 1000));
    if (chance(0.2)) r.sampling.repetition_penalty = 1.2f;
    r.sampling.prompt_logprobs = chance(0.1);
    if (chance(0.3)) r.sampling.top_logprobs = pick(0, 6);
    return r;
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace hearth::tests
