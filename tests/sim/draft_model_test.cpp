// A draft model for the fake one: a copy drafts everything right as long as its own KV is right,
// whatever happens to sequences; a spoiled one changes only the speed.

#include "engine/speculation/draft_model.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "simulation.h"
#include "tests/skip.h"

namespace hearth::tests {
namespace {

using namespace engine;

EngineConfig with_width(int32_t width, int32_t rivals = 0) {
  EngineConfig config;
  config.speculation.fixed_width = width;
  config.speculation.max_rivals = rivals;
  config.speculation.lookup = false;
  return config;
}

Request varied_request(RequestId id) {
  std::mt19937_64 random(id);
  const auto pick = [&](int32_t n) {
    return static_cast<int32_t>(random() % static_cast<uint64_t>(n));
  };
  Request request = make_request(id, 0, 5 + pick(30));
  const int32_t size = 1 + pick(90);
  for (int32_t i = 0; i < size; ++i) request.prompt.push_back(pick(i < 40 ? 1 + size % 3 : 61));
  request.sampling.temperature = id % 3 == 0 ? 0.0f : 0.9f;
  request.sampling.seed = id;
  request.sampling.top_k = id % 2 == 0 ? 5 : 0;
  if (id % 4 == 1) request.sampling.repetition_penalty = 1.3f;
  if (id % 5 == 2) request.sampling.top_logprobs = 1;
  if (id % 6 == 4) {
    request.stop_ids = {pick(61), pick(61), pick(61)};
    request.min_tokens = pick(request.max_tokens);
  }
  if (id % 8 == 6) request.n = 2;
  request.use_prefix_cache = id % 7 != 0;
  return request;
}

TEST_CASE("a copy of the model is a perfect draft: every drafted token is accepted") {
  for (int32_t width = 1; width <= 8; ++width) {
    for (const std::vector<int32_t>& windows :
         {std::vector{0}, std::vector{0, 40}, std::vector{24}}) {
      CAPTURE(width);
      CAPTURE(windows.size());
      FakeModelConfig model;
      model.windows = windows;
      Simulation sim(with_width(width), model, model);
      const RequestId requests = full_counts() ? 60 : 8;
      for (RequestId id = 1; id <= requests; ++id) {
        sim.submit(varied_request(id * 8 + static_cast<RequestId>(width)));
        for (RequestId i = 0; i < id % 4; ++i) sim.step();
      }
      sim.run_until_idle();
      sim.check_all_ended();
      const SpeculationCounts counts = sim.engine().snapshot().speculation;
      CHECK(counts.drafted_tokens > 30);
      CHECK(counts.accepted_tokens == counts.drafted_tokens);
    }
  }
}

TEST_CASE("a spoiled draft is partly right, its rivals mostly, and the text is unchanged") {
  const FakeModelConfig model;
  uint64_t accepted_alone = 0;
  for (const int32_t rivals : {0, 1, 3}) {
    CAPTURE(rivals);
    Simulation sim(with_width(4, rivals), model, model);
    sim.draft().after_step = [&](const models::StepArgs& args) {
      const kernels::BatchIndex& batch = *args.batch;
      for (int32_t i = 0; i < batch.num_outputs; ++i) {
        const int32_t position = batch.positions[batch.output_rows[i]];
        if (position * position % 11 > 3) continue;
        args.logits.row<float>(i)[7] = 1000.0f;
      }
    };
    for (RequestId id = 1; id <= 20; ++id) {
      Request request = make_request(id, 20, 60);
      request.sampling.temperature = 0.9f;
      request.sampling.seed = id;
      sim.submit(request);
      if (id % 2 == 0) sim.run_until_idle();  // a step has room for the branches of two
    }
    sim.check_all_ended();
    const SpeculationCounts counts = sim.engine().snapshot().speculation;
    const auto places = std::accumulate(counts.drafted_at.begin(), counts.drafted_at.end(), 0ull);
    CHECK(counts.accepted_tokens < places);
    CHECK(4 * counts.accepted_tokens > places);
    CHECK((places == counts.drafted_tokens) == (rivals == 0));
    // Without the token that spoils it, the draft is right: the branch is taken.
    if (rivals == 0) accepted_alone = counts.accepted_tokens;
    if (rivals > 0) CHECK(10 * counts.accepted_tokens > 11 * accepted_alone);
  }
}

TEST_CASE("a replayed draft is as accurate as its pattern, and computes as a real one would") {
  FakeModelConfig model;
  FakeModelConfig draft = model;
  Simulation sim(with_width(3), model, draft);
  // Its logits are meaningless: the script provides its draft tokens.
  sim.draft().after_step = [](const models::StepArgs& args) {
    for (int32_t i = 0; i < args.batch->num_outputs; ++i) args.logits.row<float>(i)[7] = 1000.0f;
  };
  int32_t most_rows = 0;
  sim.draft().before_step = [&](const models::StepArgs& args) {
    if (args.batch->num_outputs > 0) most_rows = std::max(most_rows, args.batch->num_tokens);
  };
  ReplayScript script(std::vector<bool>{true, true, true, true, false}, model.vocab_size);
  sim.draft_model().replay(&script);
  const Request request = make_request(1, 4, 101);
  script.know(1, 0, expected_tokens(model, request, 0).tokens);
  sim.submit(request);
  sim.run_until_idle();
  sim.check_all_ended();
  const SpeculationCounts counts = sim.record(1).done->speculation;
  // Of five positions: three drafted right, one drawn after them, one drafted wrong.
  CHECK(counts.accepted_tokens >= 57);
  CHECK(counts.accepted_tokens <= 63);
  CHECK(counts.accepted_at[0] < counts.drafted_at[0]);
  // After right drafts its own KV is right, too: it computes only its last draft token, the token
  // drawn after it, and at first the prompt.
  CHECK(most_rows <= 6);
}

TEST_CASE("a request that asks for no draft model gets none") {
  const FakeModelConfig model;
  Simulation sim(with_width(3), model, model);
  Request request = make_request(1, 10, 30);
  request.use_draft = false;
  sim.submit(request);
  Request other = make_request(2, 10, 30, 5);
  sim.submit(other);
  sim.run_until_idle();
  sim.check_all_ended();
  CHECK(sim.record(1).done->speculation.drafted_tokens == 0);
  CHECK(sim.record(2).done->speculation.drafted_tokens > 0);
}

TEST_CASE("the warm-up reports what a draft promises; one that promises nothing can be dropped") {
  FakeModelConfig model;
  model.windows = {8};
  model.cost = {10'000, 300, 0};
  for (const bool cheap : {true, false}) {
    CAPTURE(cheap);
    FakeModelConfig draft = model;
    draft.cost = cheap ? FakeCost{1'000, 30, 0} : FakeCost{30'000, 900, 0};
    EngineConfig config;
    config.speculation.lookup = false;
    Simulation sim(config, model, draft);
    CHECK(sim.engine().draft_gain(0.8) == 1);  // nothing is known yet
    sim.engine().warm_up();
    const double gain = sim.engine().draft_gain(0.8);
    CHECK(sim.engine().draft_gain(0.0) == 1);
    if (cheap) {
      CHECK(gain > 1.8);
      CHECK(gain < 3.5);
    } else {
      CHECK(gain == 1);
      sim.drop_draft();
    }
    sim.submit(make_request(1, 8, 300));
    sim.run_until_idle();
    sim.check_all_ended();
    const SpeculationCounts counts = sim.record(1).done->speculation;
    CHECK((counts.drafted_tokens > 0) == cheap);
    // The estimate of saved time: most of 300 plain steps of 10.3 ms.
    if (cheap) {
      const auto plain_us = 299 * 10'300.0;
      const auto took_us =
          static_cast<double>(sim.record(1).times_us[0].back() - sim.record(1).times_us[0].front());
      CHECK(counts.saved_us == doctest::Approx(plain_us - took_us).epsilon(0.15));
      CHECK(sim.engine().snapshot().speculation.saved_us ==
            doctest::Approx(counts.saved_us).epsilon(0.01));
    }
  }
}

TEST_CASE("a draft whose logits are not finite drafts nothing") {
  const FakeModelConfig model;
  Simulation sim(with_width(4), model, model);
  sim.draft().after_step = [](const models::StepArgs& args) {
    for (int32_t i = 0; i < args.batch->num_outputs; ++i) {
      args.logits.row<float>(i)[3] = std::numeric_limits<float>::quiet_NaN();
    }
  };
  sim.submit(varied_request(1));
  sim.run_until_idle();
  sim.check_all_ended();
  CHECK(sim.engine().snapshot().speculation.drafted_tokens == 0);
}

TEST_CASE(
    "a draft with another vocabulary is refused; one with a shorter context stops at its end") {
  const FakeModelConfig model;
  FakeModelConfig other = model;
  other.vocab_size = 60;
  FakeClock clock;
  auto device = std::make_shared<FakeDevice>();
  EngineConfig config;
  config.kv_type = kernels::DType::kF32;
  const FakeModel target(model, device, clock);
  auto refused = DraftModel::create(config, target.info(), fake_ops(device),
                                    std::make_unique<FakeModel>(other, device, clock), clock);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message == "the draft model's vocabulary has 60 tokens, want 61");

  FakeModelConfig shorter = model;
  shorter.context_length = 64;
  Simulation sim(with_width(5), model, shorter);
  sim.submit(make_request(1, 40, 100));
  sim.submit(make_request(2, 90, 20, 3));
  sim.run_until_idle();
  sim.check_all_ended();
  const SpeculationCounts counts = sim.engine().snapshot().speculation;
  CHECK(counts.accepted_tokens == counts.drafted_tokens);
  CHECK(sim.record(1).done->speculation.drafted_tokens > 10);
  CHECK(sim.record(1).done->speculation.drafted_tokens <= 24);
  CHECK(sim.record(2).done->speculation.drafted_tokens == 0);
}

TEST_CASE("with too few blocks for all drafts some requests draft less, and nothing else changes") {
  FakeModelConfig model;
  EngineConfig config = with_width(3);
  config.speculation.draft_kv_bytes = 2 * 16 * 16 * 8;  // eight blocks
  Simulation sim(config, model, model);
  for (RequestId id = 1; id <= 6; ++id) {
    Request request = make_request(id, 30, 60, static_cast<int32_t>(id));
    request.use_prefix_cache = id % 2 == 0;
    sim.submit(request);
  }
  sim.run_until_idle();
  sim.check_all_ended();
  const SpeculationCounts counts = sim.engine().snapshot().speculation;
  CHECK(counts.drafted_tokens > 20);
  CHECK(counts.accepted_tokens == counts.drafted_tokens);
}

TEST_CASE("a draft that has to catch up never delays a first token") {
  FakeModelConfig model;
  model.context_length = 2048;
  model.windows = {16};  // less to hash
  model.cost = {5'000, 300, 0};
  FakeModelConfig draft = model;
  draft.cost = {500, 30, 0};
  const auto ttft_us = [&](bool with_draft) {
    EngineConfig config;
    config.speculation.lookup = false;
    auto sim = with_draft ? std::make_unique<Simulation>(config, model, draft)
                          : std::make_unique<Simulation>(config, model);
    bool due = false;
    if (with_draft) {
      sim->draft().before_step = [&](const models::StepArgs& args) {
        // Catching up does not begin while a first token is due.
        if (due) CHECK(args.batch->num_tokens <= 3 * 9);
      };
    }
    sim->submit(make_request(1, 600, 100));
    sim->submit(make_request(2, 600, 100, 5));
    while (sim->record(1).tokens[0].empty() || sim->record(2).tokens[0].empty()) {
      due = true;
      sim->step();
    }
    const int64_t first = sim->record(2).done.has_value() ? 0 : sim->clock().now_us();
    due = false;
    for (int i = 0; i < 30; ++i) sim->step();
    due = true;
    sim->submit(make_request(3, 600, 10, 9));
    const int64_t begin = sim->clock().now_us();
    while (sim->record(3).tokens[0].empty()) sim->step();
    const int64_t second = sim->clock().now_us() - begin;
    sim->run_until_idle();
    sim->check_all_ended();
    return std::pair(first, second);
  };
  const auto without = ttft_us(false);
  const auto with = ttft_us(true);
  // No draft step ran before the first tokens.
  CHECK(with.first <= without.first * 102 / 100);
  // Streams with speculation may take a little longer per step, for more tokens.
  CHECK(with.second <= without.second * 13 / 10);
}

int64_t decode_us(const FakeModelConfig& model, const FakeModelConfig* draft, bool spoil,
                  int32_t streams) {
  EngineConfig config;
  config.kv_bytes = 256 << 10;
  config.speculation.draft_kv_bytes = 256 << 10;
  config.speculation.lookup = false;
  config.speculation.enabled = draft != nullptr;
  auto sim = draft != nullptr ? std::make_unique<Simulation>(config, model, *draft)
                              : std::make_unique<Simulation>(config, model);
  if (draft != nullptr && spoil) {
    std::mt19937 random(5);
    sim->draft().after_step = [random](const models::StepArgs& args) mutable {
      for (int32_t i = 0; i < args.batch->num_outputs; ++i) {
        if (random() % 10 != 0) args.logits.row<float>(i)[random() % 61] = 1000.0f;
      }
    };
  }
  sim->engine().warm_up();
  for (RequestId id = 1; id <= static_cast<RequestId>(streams); ++id) {
    sim->submit(make_request(id, 8, 400, static_cast<int32_t>(id)));
  }
  sim->run_until_idle();
  sim->check_all_ended();
  int64_t first = INT64_MAX, last = 0;
  for (const auto& [id, record] : sim->records()) {
    first = std::min(first, record.times_us.front().front());
    last = std::max(last, record.times_us.front().back());
  }
  return last - first;
}

TEST_CASE("a draft model is used where it pays, and is never slower than plain decoding") {
  FakeModelConfig model;
  model.windows = {8};  // less to hash
  model.cost = {10'000, 300, 0};
  struct Row {
    double cost_share;  ///< of a draft step in the target's
    bool spoil;
    int32_t streams;
    double at_least;
  };
  const Row rows[] = {{0.1, false, 1, 2.5}, {0.1, false, 8, 1.5},  {0.1, true, 1, 0.98},
                      {0.1, true, 8, 0.98}, {1.0, false, 1, 0.98}, {0.5, true, 1, 0.98}};
  for (const Row& row : rows) {
    CAPTURE(row.cost_share);
    CAPTURE(row.spoil);
    CAPTURE(row.streams);
    FakeModelConfig draft = model;
    draft.cost = {10'000 * row.cost_share, 300 * row.cost_share, 0};
    const auto plain = static_cast<double>(decode_us(model, nullptr, false, row.streams));
    const auto drafted = static_cast<double>(decode_us(model, &draft, row.spoil, row.streams));
    MESSAGE("a draft step costs " << row.cost_share << " of a plain one, " << row.streams
                                  << " sequences, " << (row.spoil ? "spoiled" : "perfect") << ": "
                                  << plain / drafted);
    CHECK(plain / drafted >= row.at_least);
  }
}

}  // namespace
}  // namespace hearth::tests
