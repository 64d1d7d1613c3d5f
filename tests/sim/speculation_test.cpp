// Speculation in the whole engine on the fake model: the same text at any width, by any proposer,
// with any options; rejected drafts leave no trace; and on a fake clock it is never slower than
// plain decoding.

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "engine/speculation/replay_proposer.h"
#include "simulation.h"
#include "tests/skip.h"

namespace hearth::tests {
namespace {

using namespace engine;

/// All samples of the request, without speculation, by the pure function of the fake model.
void teach(ReplayProposer& proposer, const FakeModelConfig& model, const Request& request) {
  for (int32_t sample = 0; sample < request.n; ++sample) {
    proposer.know(request.id, sample, expected_tokens(model, request, sample).tokens);
  }
}

/// A request with different options each time.
Request varied_request(RequestId id, int32_t max_tokens) {
  std::mt19937_64 random(id);
  const auto pick = [&](int32_t n) {
    return static_cast<int32_t>(random() % static_cast<uint64_t>(n));
  };
  Request request = make_request(id, 0, max_tokens);
  const int32_t size = 1 + pick(50);
  for (int32_t i = 0; i < size; ++i) request.prompt.push_back(pick(61));
  SamplingParams& sampling = request.sampling;
  sampling.temperature = id % 3 == 0 ? 0.0f : 0.9f;
  sampling.seed = id;
  if (id % 2 == 0) sampling.top_k = 3;
  if (id % 4 == 1) {
    sampling.repetition_penalty = 1.3f;
    sampling.frequency_penalty = 0.4f;
    sampling.presence_penalty = 0.2f;
    sampling.penalty_window = 20;
  }
  // A small vocabulary: the text repeats, and lookup finds something.
  if (id % 5 == 2) {
    sampling.logit_bias = {{3, 20.0f}, {4, 20.0f}};
  }
  if (id % 7 == 3) sampling.top_logprobs = 2;
  if (id % 6 == 4) {
    request.stop_ids = {pick(61), pick(61), 3};
    request.min_tokens = pick(max_tokens);
  }
  if (id % 11 == 5) sampling.prompt_logprobs = true;
  if (id % 8 == 6) request.n = 3;
  return request;
}

EngineConfig with_width(int32_t width) {
  EngineConfig config;
  config.speculation.fixed_width = width;
  return config;
}

/// Microseconds from the first to the last token of `streams` requests, all posted at once, after a
/// warm-up.
int64_t decode_us(const FakeModelConfig& model, int32_t streams, double acceptance,
                  const SpeculationConfig& speculation, bool second_batch = true) {
  EngineConfig config;
  config.kv_bytes = 256 << 10;
  config.speculation = speculation;
  auto proposer = std::make_unique<ReplayProposer>(
      ReplayProposer::random_pattern(acceptance, 4099, 3), model.vocab_size);
  ReplayProposer& knows = *proposer;
  Simulation sim(config, model, std::move(proposer));
  sim.engine().warm_up();
  int64_t first = INT64_MAX, last = 0;
  RequestId next = 1;
  for (int batch = 0; batch < (second_batch ? 2 : 1); ++batch) {
    first = INT64_MAX;
    const RequestId begin = next;
    for (int32_t i = 0; i < streams; ++i) {
      const RequestId id = next++;
      Request request = make_request(id, 8, 200, static_cast<int32_t>(id));
      teach(knows, model, request);
      sim.submit(request);
    }
    sim.run_until_idle();
    for (RequestId id = begin; id < next; ++id) {
      first = std::min(first, sim.record(id).times_us.front().front());
      last = std::max(last, sim.record(id).times_us.front().back());
    }
  }
  sim.check_all_ended();
  return last - first;
}

TEST_CASE("the same text at every width, by every proposer, with every sampling option") {
  const int32_t prompts = full_counts() ? 500 : 50;
  const FakeModelConfig model;
  uint64_t accepted = 0, rejected = 0;
  for (int32_t width = 1; width <= 8; ++width) {
    for (const double acceptance : {0.0, 0.7, 1.0}) {
      CAPTURE(width);
      CAPTURE(acceptance);
      auto proposer = std::make_unique<ReplayProposer>(
          ReplayProposer::random_pattern(acceptance, 61, 7), model.vocab_size);
      ReplayProposer& knows = *proposer;
      Simulation sim(with_width(width), model, std::move(proposer));
      for (int32_t i = 0; i < prompts / 3 + 1; ++i) {
        const Request request = varied_request(static_cast<RequestId>(i * 3 + width), 25);
        // One in five uses lookup.
        if (i % 5 != 0) teach(knows, model, request);
        sim.submit(request);
        if (i % 2 == 0) sim.step();
      }
      sim.run_until_idle();
      sim.check_all_ended();
      const SpeculationCounts& counts = sim.engine().snapshot().speculation;
      accepted += counts.accepted_tokens;
      rejected += counts.drafted_tokens - counts.accepted_tokens;
    }
  }
  CHECK(accepted > static_cast<uint64_t>(prompts) * 20);
  CHECK(rejected > static_cast<uint64_t>(prompts) * 20);
}

TEST_CASE("a draft layer: the same text at every width, with every option and few blocks") {
  uint64_t preemptions = 0;
  for (const std::vector<int32_t>& windows :
       {std::vector<int32_t>{0, kRecurrent}, std::vector<int32_t>{0, 20, kRecurrent}}) {
    for (const int32_t width : {0, 1, 2, 4, 8}) {
      for (const bool few_blocks : {false, true}) {
        CAPTURE(windows.size());
        CAPTURE(width);
        CAPTURE(few_blocks);
        FakeModelConfig model;
        model.windows = windows;
        model.drafts = true;
        EngineConfig config = with_width(width);
        config.speculation.lookup = width == 0;
        config.scheduler.max_seqs = 6;
        if (few_blocks) config.kv_bytes = windows.size() == 2 ? 10'000 : 20'000;
        Simulation sim(config, model);
        for (int32_t i = 0; i < (full_counts() ? 200 : 40); ++i) {
          Request request = varied_request(static_cast<RequestId>(i * 3 + width), 25);
          if (few_blocks && request.n > 2) request.n = 2;
          sim.submit(request);
          if (i % 2 == 0) sim.step();
        }
        sim.run_until_idle();
        sim.check_all_ended();
        const SpeculationCounts counts = sim.engine().snapshot().speculation;
        preemptions += sim.engine().snapshot().preemptions_total;
        if (width == 0) continue;
        CHECK(sim.model().num_drafts() > 50);
        CHECK(counts.drafted_at[0] > 100);
        // Two of three positions are right, unless a limit of the sampling parameters intervenes.
        CHECK(static_cast<double>(counts.accepted_at[0]) >
              0.5 * static_cast<double>(counts.drafted_at[0]));
        CHECK(counts.accepted_at[0] < counts.drafted_at[0]);
        CHECK(counts.drafted_at[4] == 0);
      }
    }
  }
  CHECK(preemptions > 0);
}

TEST_CASE("a draft layer is used where it pays, and not where it never can") {
  for (const double row_us : {10.0, 900.0}) {
    FakeModelConfig model;
    model.windows = {0, kRecurrent};
    model.drafts = true;
    model.wrong_every = 5;
    model.cost.per_token_us = row_us;
    EngineConfig config;
    config.speculation.lookup = false;
    const auto time_of = [&](bool speculate) {
      config.speculation.enabled = speculate;
      Simulation sim(config, model);
      sim.engine().warm_up();
      const int64_t begin_us = sim.clock().now_us();
      Request request = make_request(1, 20, 200);
      request.sampling.temperature = 0.8f;
      sim.submit(request);
      sim.run_until_idle();
      sim.check_all_ended();
      return static_cast<double>(sim.clock().now_us() - begin_us);
    };
    const double gain = time_of(false) / time_of(true);
    CAPTURE(gain);
    CHECK(gain > (row_us < 100 ? 1.7 : 0.97));
  }
}

TEST_CASE("logprobs of accepted tokens equal those of plain decoding") {
  const FakeModelConfig model;
  const auto events = [&](int32_t width) {
    auto proposer = std::make_unique<ReplayProposer>(std::vector<bool>{true, true, true, false},
                                                     model.vocab_size);
    ReplayProposer& knows = *proposer;
    EngineConfig config = with_width(width);
    config.speculation.enabled = width > 0;
    Simulation sim(config, model, std::move(proposer));
    Request request = make_request(1, 20, 40);
    request.sampling.temperature = 0.8f;
    request.sampling.top_logprobs = 3;
    request.sampling.repetition_penalty = 1.2f;
    teach(knows, model, request);
    sim.submit(request);
    sim.run_until_idle();
    sim.check_all_ended();
    return sim.record(1).token_events;
  };
  const auto plain = events(0);
  const auto speculated = events(4);
  REQUIRE(plain.size() == speculated.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    CHECK(plain[i].token == speculated[i].token);
    CHECK(plain[i].index == speculated[i].index);
    CHECK(plain[i].logprob == speculated[i].logprob);
    REQUIRE(plain[i].top_logprobs.size() == speculated[i].top_logprobs.size());
    for (size_t k = 0; k < plain[i].top_logprobs.size(); ++k) {
      CHECK(plain[i].top_logprobs[k].token == speculated[i].top_logprobs[k].token);
      CHECK(plain[i].top_logprobs[k].logprob == speculated[i].top_logprobs[k].logprob);
    }
  }
}

TEST_CASE("four perfect draft tokens save four of five steps, and the counts show it") {
  const FakeModelConfig model;
  auto proposer = std::make_unique<ReplayProposer>(std::vector<bool>{true}, model.vocab_size);
  ReplayProposer& knows = *proposer;
  EngineConfig config = with_width(4);
  config.speculation.lookup = false;
  config.speculation.max_rivals = 0;
  Simulation sim(config, model, std::move(proposer));
  const Request request = make_request(1, 10, 51);
  teach(knows, model, request);
  sim.submit(request);
  sim.run_until_idle();
  sim.check_all_ended();
  // The first token comes from the prefill, then ten times five.
  const EngineSnapshot snapshot = sim.engine().snapshot();
  CHECK(sim.record(1).started.has_value());
  CHECK(snapshot.speculation.verifications == 10);
  CHECK(snapshot.speculation.drafted_tokens == 40);
  CHECK(snapshot.speculation.accepted_tokens == 40);
  CHECK(snapshot.speculation.drafted_at[3] == 10);
  CHECK(snapshot.speculation.accepted_at[3] == 10);
  CHECK(snapshot.speculation.drafted_at[4] == 0);
  CHECK(sim.record(1).done->speculation.drafted_tokens == 40);
  CHECK(sim.record(1).done->speculation.accepted_tokens == 40);
  CHECK(sim.record(1).done->speculation.accepted_at[3] == 10);
  CHECK(sim.record(1).done->speculation.verifications == 10);
  CHECK(snapshot.decode_tokens_total == 50);
}

TEST_CASE("where the chain is wrong, the branch of a rival goes on, across the borders of blocks") {
  for (const int32_t prompt : {10, 15, 16, 17}) {
    CAPTURE(prompt);
    FakeModelConfig model;
    model.windows = {0, 20};
    // The chain is right at one of two positions, its rivals at two of three where it is wrong.
    auto proposer =
        std::make_unique<ReplayProposer>(std::vector<bool>{true, false}, model.vocab_size);
    ReplayProposer& knows = *proposer;
    EngineConfig config = with_width(4);
    config.speculation.lookup = false;
    config.speculation.max_rivals = 1;
    Simulation sim(config, model, std::move(proposer));
    const Request request = make_request(1, prompt, 51);
    teach(knows, model, request);
    sim.submit(request);
    sim.run_until_idle();
    sim.check_all_ended();
    uint64_t accepted = 0, verifications = 0;
    for (int32_t at = prompt + 1; at < prompt + 51; ++at, ++verifications) {
      bool in_branch = false;
      for (int32_t place = 0; place < 4 && at + 1 < prompt + 51; ++place, ++at, ++accepted) {
        if (at % 2 == 0) continue;
        if (in_branch || at % 3 == 0) break;
        in_branch = true;
      }
    }
    const SpeculationCounts& counts = sim.engine().snapshot().speculation;
    CHECK(counts.accepted_tokens == accepted);
    CHECK(counts.verifications == verifications);
    CHECK(counts.drafted_at[3] < counts.drafted_tokens / 4);
  }
}

TEST_CASE("branches pay where rows are cheap, and cost nothing where they are not") {
  SpeculationConfig chain;
  chain.max_rivals = 0;
  SpeculationConfig branches;
  branches.max_rivals = 1;
  FakeModelConfig model;
  model.num_layers = 1;
  model.windows = {8};
  for (const bool cheap : {true, false}) {
    CAPTURE(cheap);
    model.cost = cheap ? FakeCost{10'000, 50, 0} : FakeCost{1'000, 500, 0};
    const double gain = static_cast<double>(decode_us(model, 1, 0.6, chain)) /
                        static_cast<double>(decode_us(model, 1, 0.6, branches));
    MESSAGE(gain);
    CHECK(gain > (cheap ? 1.3 : 0.97));
  }
}

TEST_CASE("one wrong draft token of three: those after it are rejected, too") {
  const FakeModelConfig model;
  // Positions 0, 3, 6, ... are drafted wrong.
  auto proposer =
      std::make_unique<ReplayProposer>(std::vector<bool>{false, true, true}, model.vocab_size);
  ReplayProposer& knows = *proposer;
  EngineConfig config = with_width(5);
  config.speculation.lookup = false;
  Simulation sim(config, model, std::move(proposer));
  const Request request = make_request(1, 10, 31);
  teach(knows, model, request);
  sim.submit(request);
  sim.run_until_idle();
  sim.check_all_ended();
  const SpeculationCounts counts = sim.engine().snapshot().speculation;
  // From 11 on: one right draft token and one drawn, then nine times two right and one drawn; the
  // last token, at 40, is not worth a draft.
  CHECK(counts.accepted_tokens == 19);
  CHECK(counts.accepted_at[0] == counts.verifications);
  CHECK(counts.accepted_at[2] == 0);
}

TEST_CASE("a request without speculation gets none, and none gets it where it is off") {
  const FakeModelConfig model;
  for (const bool enabled : {true, false}) {
    auto proposer = std::make_unique<ReplayProposer>(std::vector<bool>{true}, model.vocab_size);
    ReplayProposer& knows = *proposer;
    EngineConfig config = with_width(4);
    config.speculation.enabled = enabled;
    Simulation sim(config, model, std::move(proposer));
    Request request = make_request(1, 10, 30);
    request.speculate = !enabled;
    teach(knows, model, request);
    sim.submit(request);
    sim.run_until_idle();
    sim.check_all_ended();
    CHECK(sim.engine().snapshot().speculation.drafted_tokens == 0);
  }
}

TEST_CASE("never slower than plain, and faster where drafts are good and rows cheap") {
  SpeculationConfig off;
  off.enabled = false;
  struct Row {
    FakeCost cost;
    int32_t streams;
    double acceptance;
    double at_least;  ///< of plain decoding's speed
  };
  const FakeCost reads_weights{10'000, 200, 0};  // 50 rows cost as much as the weights
  const FakeCost computes{1'000, 1'000, 0};      // two rows do
  const Row rows[] = {
      {reads_weights, 1, 0.8, 2.2},  {reads_weights, 1, 1.0, 5.0},   {reads_weights, 1, 0.1, 0.98},
      {reads_weights, 1, 0.0, 0.98}, {reads_weights, 16, 0.1, 0.98}, {reads_weights, 4, 0.8, 1.8},
      {computes, 1, 0.1, 0.98},      {computes, 1, 0.5, 0.98},       {computes, 16, 0.8, 0.98},
      {computes, 16, 0.1, 0.98},     {computes, 4, 0.5, 0.98},
  };
  for (const Row& row : rows) {
    CAPTURE(row.cost.per_token_us);
    CAPTURE(row.streams);
    CAPTURE(row.acceptance);
    FakeModelConfig model;
    model.num_layers = 1;
    model.windows = {8};  // less to hash
    model.cost = row.cost;
    const auto plain = static_cast<double>(decode_us(model, row.streams, row.acceptance, off));
    const auto speculated =
        static_cast<double>(decode_us(model, row.streams, row.acceptance, SpeculationConfig{}));
    MESSAGE("rows cost " << row.cost.per_token_us / row.cost.base_us << " of the weights, "
                         << row.streams << " sequences, acceptance " << row.acceptance << ": "
                         << plain / speculated);
    CHECK(plain / speculated >= row.at_least);
  }
}

TEST_CASE("drafting pauses while a request needs memory, and prompts prefill in the same steps") {
  FakeModelConfig model;
  model.context_length = 1024;
  EngineConfig config = with_width(8);
  config.scheduler.max_step_tokens = 4;
  auto proposer = std::make_unique<ReplayProposer>(std::vector<bool>{true}, model.vocab_size);
  ReplayProposer& knows = *proposer;
  Simulation sim(config, model, std::move(proposer));
  const Request stream = make_request(1, 4, 400);
  teach(knows, model, stream);
  sim.submit(stream);
  while (sim.record(1).tokens[0].size() < 4) sim.step();
  sim.submit(make_request(2, 60, 4, 5));
  int steps = 0;
  while (sim.record(2).final_events == 0) {
    sim.step();
    REQUIRE(++steps < 150);
  }
  CHECK(sim.record(1).final_events == 0);
  sim.run_until_idle();
  sim.check_all_ended();
}

TEST_CASE("a warm-up with drafts leaves no state") {
  Simulation sim({}, {});
  sim.engine().warm_up();
  CHECK_FALSE(sim.step());
  const EngineSnapshot snapshot = sim.engine().snapshot();
  CHECK(snapshot.speculation.drafted_tokens == 0);
  CHECK(snapshot.num_steps == 0);
  CHECK(snapshot.kv_blocks_used.front() == 0);
  CHECK(snapshot.kv_blocks_cached.front() == 0);
  sim.engine().check_integrity();
}

TEST_CASE("what steps cost is measured in an idle moment, without any request") {
  FakeModelConfig model;
  model.cost = {20'000, 3'000, 0};
  Simulation sim({}, model);
  sim.engine().warm_up(false);
  CHECK(sim.engine().measure_costs());
  CHECK(sim.engine().step_us(1) == doctest::Approx(23'000));
  CHECK(sim.engine().step_us(8) == doctest::Approx(20'000 + 8 * 3'000));
  CHECK(sim.engine().snapshot().num_steps == 0);
  sim.engine().check_integrity();
}

TEST_CASE("what steps of several rows cost is measured in an idle moment") {
  FakeModelConfig model;
  model.cost = {20'000, 3'000, 0};
  Simulation sim({}, model);
  sim.engine().warm_up(false);
  CHECK(sim.engine().step_us(8) < 40'000);
  sim.submit(make_request(1, 20, 4));
  CHECK_FALSE(sim.engine().measure_costs());  // waiting requests come first
  sim.run_until_idle();
  const EngineSnapshot before = sim.engine().snapshot();
  CHECK(sim.engine().measure_costs());
  CHECK_FALSE(sim.step());
  CHECK(sim.engine().step_us(8) == doctest::Approx(20'000 + 8 * 3'000));
  const EngineSnapshot after = sim.engine().snapshot();
  CHECK(after.num_steps == before.num_steps);
  CHECK(after.speculation.drafted_tokens == before.speculation.drafted_tokens);
  CHECK(after.kv_blocks_used.front() == 0);
  CHECK(after.kv_blocks_cached == before.kv_blocks_cached);
  sim.engine().check_integrity();
  sim.check_all_ended();
}

}  // namespace
}  // namespace hearth::tests
