// Forks: samples that continue the text of a running request, on its blocks.

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "simulation.h"
#include "tests/skip.h"

namespace hearth::tests {
namespace {

using namespace engine;

constexpr RequestId kParent = 1;
constexpr int32_t kPrompt = 37;

/// A request whose prompt is the parent's and the first `taken` tokens of its sample.
Request fork_of(const Record& parent, RequestId id, int32_t sample, int32_t taken) {
  const auto& tokens = parent.tokens[static_cast<size_t>(sample)];
  Request request = parent.request;
  request.id = id;
  request.n = 1;
  request.max_tokens = 20;
  request.sampling.seed = 100 + id;
  request.prompt.insert(request.prompt.end(), tokens.begin(), tokens.begin() + taken);
  request.fork_of = parent.request.id;
  request.fork_sample = sample;
  return request;
}

Request parent_request(int32_t n) {
  Request request = make_request(kParent, kPrompt, 60, 3);
  request.n = n;
  request.sampling.temperature = 1;
  return request;
}

size_t shortest(const Record& record) {
  size_t least = SIZE_MAX;
  for (const auto& tokens : record.tokens) least = std::min(least, tokens.size());
  return least;
}

TEST_CASE(
    "a fork computes one token of its prompt, at any position, and gives the text it gives alone") {
  for (const auto& windows : {std::vector<int32_t>{0}, std::vector<int32_t>{0, 24}}) {
    FakeModelConfig model;
    model.windows = windows;
    for (int32_t taken = 0; taken <= 40; ++taken) {
      CAPTURE(taken);
      CAPTURE(windows.size());
      EngineConfig config;
      config.kv_bytes = 1 << 20;
      Simulation sim(config, model);
      sim.submit(parent_request(2));
      while (sim.records().empty() || shortest(sim.record(kParent)) < 45) sim.step();
      const int32_t sample = taken % 2;
      Request fork = fork_of(sim.record(kParent), 2, sample, taken);
      fork.n = 1 + taken % 3;
      sim.submit(fork);
      sim.run_until_idle();
      sim.check_all_ended();  // each compared with a request of its own
      const auto prompt = static_cast<int32_t>(fork.prompt.size());
      // With a window, earlier KV no longer exists for a fork from further back.
      if (windows.size() == 1) CHECK(sim.record(2).started->cached_tokens == prompt - 1);
    }
  }
}

TEST_CASE("a fork of the current state shares the partial block, with a window or without") {
  for (const auto& windows : {std::vector<int32_t>{0}, std::vector<int32_t>{0, 24}}) {
    FakeModelConfig model;
    model.windows = windows;
    EngineConfig config;
    config.kv_bytes = 1 << 20;
    Simulation sim(config, model);
    sim.submit(parent_request(1));
    while (sim.records().empty() || shortest(sim.record(kParent)) < 17) sim.step();
    const auto taken = static_cast<int32_t>(sim.record(kParent).tokens[0].size());
    sim.submit(fork_of(sim.record(kParent), 2, 0, taken));
    sim.run_until_idle();
    sim.check_all_ended();
    CHECK(sim.record(2).started->cached_tokens == kPrompt + taken - 1);
  }
}

TEST_CASE("forks of forks, cancels and little memory: the right tokens, and no block is lost") {
  const int rounds = full_counts() ? 400 : 40;
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    std::mt19937_64 random(static_cast<uint64_t>(round));
    FakeModelConfig model;
    if (round % 3 == 1) model.windows = {0, 24};
    EngineConfig config;
    config.kv_bytes = (40 + random() % 100) * 512;
    config.scheduler.max_seqs = 8;
    config.scheduler.max_step_tokens = 16 + static_cast<int32_t>(random() % 64);
    Simulation sim(config, model);
    Request first = parent_request(1 + static_cast<int32_t>(random() % 3));
    sim.submit(first);
    RequestId next = 2;
    for (int action = 0; action < 40 && next < 14; ++action) {
      for (uint64_t steps = random() % 6; steps > 0; --steps) sim.step();
      if (sim.records().empty()) continue;
      auto it = sim.records().begin();
      std::advance(it, static_cast<ptrdiff_t>(random() % sim.records().size()));
      Record& of = sim.record(it->first);
      if (random() % 8 == 0) {
        of.cancelled = true;
        sim.post(CancelRequest{of.request.id});
        continue;
      }
      const auto sample = static_cast<int32_t>(random() % of.tokens.size());
      const auto had = of.tokens[static_cast<size_t>(sample)].size();
      if (of.request.prompt.size() + had > 300) continue;
      Request fork = fork_of(of, next, sample, static_cast<int32_t>(random() % (had + 1)));
      fork.n = 1 + static_cast<int32_t>(random() % 3);
      if (random() % 8 == 0) fork.fork_of = 99;  // not there
      if (random() % 8 == 0)
        fork.prompt.back() = (fork.prompt.back() + 1) % 61;  // other tokens: rejected
      if (random() % 8 == 0) fork.use_prefix_cache = false;
      sim.submit(fork);
      ++next;
    }
    sim.run_until_idle();
    sim.check_all_ended();
  }
}

}  // namespace
}  // namespace hearth::tests
