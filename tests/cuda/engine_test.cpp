// The engine on the CUDA table: captured steps equal the same ops one by one, decoding runs them,
// and the engine continues when the device or the host has no memory for them.

#include "engine/engine.h"

#include "engine/speculation/replay_proposer.h"
#include "engine/steps/captured_steps.h"
#include "engine/steps/model_runner.h"
#include "kernels/ops/encoder_ops.h"
#include "tests/cuda/rig.h"
#include "tests/golden/engine/engine_run.h"
#include "tests/golden/random_llama.h"

namespace hearth::tests {

using namespace golden;  // NOLINT

namespace {

const LlamaShape kShape = {.name = "small", .layers = 2, .kv_heads = 2};

OwnedFile model_file(uint32_t seed) {
  return OwnedFile(RandomLlama(kShape, seed).file_bytes(DType::kF16));
}

engine::EngineConfig config() {
  engine::EngineConfig c;
  c.context_length = 96;
  c.kv_bytes = 1 << 20;
  c.scheduler.max_seqs = 5;
  c.scheduler.max_step_tokens = 24;
  c.speculation.enabled = false;
  return c;
}

engine::Request request(engine::RequestId id, int32_t prompt, int32_t output) {
  engine::Request r;
  r.id = id;
  r.prompt = random_tokens(prompt, kShape.vocab, static_cast<uint32_t>(id));
  r.max_tokens = output;
  return r;
}

/// Captured steps launched so far, where they are counted.
int64_t graph_launches() { return runtime_counts().value_or(RuntimeCounts{}).graph_launches; }
int64_t bytes_to_host() { return runtime_counts().value_or(RuntimeCounts{}).bytes_to_host; }
bool counted() { return runtime_counts().has_value(); }

/// Five requests that arrive and end: steps of one to five rows, across block borders.
std::vector<std::vector<int32_t>> serve(const OpTable& ops) {
  const OwnedFile file = model_file(1);
  EngineRun run(file.file, ops, config());
  const std::vector<engine::Request> requests = {
      request(1, 3, 22), request(2, 30, 5), request(3, 15, 4), request(4, 1, 9), request(5, 8, 6)};
  for (const engine::Request& r : requests) {
    run.submit(r);
    run.step();
    run.step();
  }
  run.run_until_idle();
  std::vector<std::vector<int32_t>> tokens;
  for (const engine::Request& r : requests) {
    const EngineAnswer& answer = run.answer(r.id);
    CHECK(answer.ended);
    CHECK_FALSE(answer.failed);
    CHECK(answer.tokens.at(0).size() == static_cast<size_t>(r.max_tokens));
    tokens.push_back(answer.tokens.at(0));
  }
  return tokens;
}

OpTable one_by_one(OpTable ops) {
  ops.begin_capture = nullptr;
  return ops;
}

/// A table that does not know which product reads an op's output.
OpTable without_readers(OpTable ops) {
  static void (*rms_norm)(void*, const kernels::RmsNormArgs&);
  static void (*gated)(void*, const kernels::GatedActivationArgs&);
  rms_norm = ops.rms_norm;
  gated = ops.gated_activation;
  ops.rms_norm = [](void* state, const kernels::RmsNormArgs& given) {
    kernels::RmsNormArgs args = given;
    args.reader = nullptr;
    rms_norm(state, args);
  };
  ops.gated_activation = [](void* state, const kernels::GatedActivationArgs& given) {
    kernels::GatedActivationArgs args = given;
    args.reader = nullptr;
    gated(state, args);
  };
  return ops;
}

/// Logits and launches of a few steps of a quantized model, one row each.
struct Steps {
  std::vector<float> logits;
  int64_t launches = 0;
};
Steps run_steps(const OpTable& ops, const OwnedFile& file, int32_t context, int32_t count) {
  auto model = models::load_model(file.file, ops, nullptr).value();
  engine::EngineConfig planned = config();
  planned.context_length = context;
  planned.kv_bytes = 4 << 20;
  const engine::MemoryPlan plan = engine::plan_memory(planned, *model, 1 << 25).value();
  auto runner = engine::ModelRunner::create(plan, DType::kF16, ops, std::move(model)).value();
  engine::Sequence sequence;
  sequence.blocks.tables = {{1}};
  sequence.tokens = random_tokens(count, kShape.vocab, 1);
  Steps steps;
  const RuntimeCounts before = runtime_counts().value_or(RuntimeCounts{});
  for (int32_t i = 0; i < count; ++i) {
    engine::StepPlan step;
    step.rows.push_back({&sequence, i, 1, i, false});
    step.num_tokens = step.num_outputs = 1;
    runner->run(step);
    const std::span<const float> row = runner->logits(0);
    steps.logits.insert(steps.logits.end(), row.begin(), row.end());
  }
  steps.launches = runtime_counts().value_or(RuntimeCounts{}).launches - before.launches;
  return steps;
}
Steps run_steps(const OpTable& ops, int32_t layers, int32_t count) {
  LlamaShape shape = kShape;
  shape.layers = layers;
  const OwnedFile file(RandomLlama(shape, 3).file_bytes(DType::kQ8_0));
  return run_steps(ops, file, config().context_length, count);
}

OpTable without_pairs(OpTable ops) {
  static kernels::EncoderOps apart;
  apart = *ops.encoder;
  apart.rotate_and_store = nullptr;
  apart.multiply_and_gate = nullptr;
  ops.encoder = &apart;
  return ops;
}

}  // namespace

TEST_CASE("captured steps: launch bounds") {
  CHECK(engine::CapturedSteps::buckets(0).empty());
  CHECK(engine::CapturedSteps::buckets(1) == std::vector<int32_t>{1});
  CHECK(engine::CapturedSteps::buckets(5) == std::vector<int32_t>{1, 2, 3, 4, 5});
  CHECK(engine::CapturedSteps::buckets(16) == std::vector<int32_t>{1, 2, 3, 4, 6, 8, 12, 16});
  CHECK(engine::CapturedSteps::buckets(4128).back() == 64);
}

TEST_CASE("engine: captured steps equal their ops called one by one") {
  HEARTH_CUDA_TABLE(ops);
  int64_t before = graph_launches();
  const auto eager = serve(one_by_one(ops));
  CHECK(graph_launches() == before);
  const auto captured = serve(ops);
  CHECK(captured == eager);
  if (counted()) CHECK(graph_launches() - before >= 8);  // steps without prompt tokens

  // The logits are equal, too, to the bit.
  const auto logits_of = [](const OpTable& table) {
    const OwnedFile file = model_file(1);
    auto model = models::load_model(file.file, table, nullptr).value();
    const engine::MemoryPlan plan = engine::plan_memory(config(), *model, 1 << 24).value();
    auto runner = engine::ModelRunner::create(plan, DType::kF16, table, std::move(model)).value();
    std::vector<float> all;
    engine::Sequence a, b;
    a.blocks.tables = {{3, 0}};
    b.blocks.tables = {{1, 2}};
    a.tokens = random_tokens(20, kShape.vocab, 1);
    b.tokens = random_tokens(20, kShape.vocab, 2);
    for (int32_t i = 0; i < 18; ++i) {
      engine::StepPlan step;
      const int32_t other = i - (i + 1) / 3;  // steps with b in them
      step.rows.push_back({&a, i, 1, i, false});
      if (i % 3 != 1) step.rows.push_back({&b, other, 1, other, false});
      step.num_tokens = step.num_outputs = static_cast<int32_t>(step.rows.size());
      runner->run(step);
      for (int32_t row = 0; row < step.num_outputs; ++row) {
        const std::span<const float> logits = runner->logits(row);
        all.insert(all.end(), logits.begin(), logits.end());
      }
    }
    return all;
  };
  before = graph_launches();
  const std::vector<float> want = logits_of(one_by_one(ops));
  CHECK(logits_of(ops) == want);
  if (counted()) CHECK(graph_launches() - before == 18);
}

TEST_CASE("engine: norms and activations quantize for the following product, three per layer") {
  HEARTH_CUDA_TABLE(ops);
  const OpTable eager = one_by_one(ops);
  const OpTable apart = without_readers(eager);
  constexpr int32_t kSteps = 5;
  const Steps want = run_steps(apart, 2, kSteps);
  const Steps held = run_steps(eager, 2, kSteps);
  CHECK(held.logits == want.logits);
  CHECK(run_steps(ops, 2, kSteps).logits == want.logits);  // captured

  if (!counted()) return;
  // Per layer two norms and an activation, and the norm before the head.
  CHECK(want.launches - held.launches == kSteps * (2 * 3 + 1));
  const int64_t layer = run_steps(eager, 3, kSteps).launches - held.launches;
  const int64_t layer_apart = run_steps(apart, 3, kSteps).launches - want.launches;
  MESSAGE("launches of a layer of one row: " << layer_apart / kSteps << " apart, " << layer / kSteps
                                             << " so");
  CHECK(layer_apart - layer == kSteps * 3);
}

TEST_CASE("engine: pools that take memory as blocks fill give the same tokens") {
  HEARTH_CUDA_TABLE(ops);
  const OpTable elastic = kernels::cuda_ops({.unconfirmed = true}).value();
  REQUIRE(elastic.elastic != nullptr);
  const auto want = serve(ops);  // with all else that no device has run yet
  CHECK(serve(elastic) == want);

  const auto in_use = [] { return runtime_counts().value_or(RuntimeCounts{}).bytes_in_use; };
  const OwnedFile file = model_file(1);
  engine::EngineConfig large = config();
  large.kv_bytes = 64 << 20;
  uint64_t taken[2] = {};
  for (const bool backed_later : {false, true}) {
    const uint64_t before = in_use();
    EngineRun run(file.file, backed_later ? elastic : ops, large);
    CHECK(run.ask(request(1, 3, 22)).tokens.at(0) == want.at(0));
    taken[backed_later] = in_use() - before;
  }
  if (counted()) CHECK(taken[1] + (48 << 20) < taken[0]);
}

TEST_CASE("engine: launches of a layer in a decode step of one row") {
  HEARTH_CUDA_TABLE(ops);
  OpTable at_once = kernels::cuda_ops({.unconfirmed = true}).value();
  at_once.elastic = nullptr;  // the blocks of these steps are used without an engine
  constexpr int32_t kSteps = 3;
  struct Model {
    DType type, v_type;
    int32_t head_dim, launches, launches_at_once;
  };
  // Norm, q with k and v, rotation with the KV store, attention, merge of its splits, output, norm,
  // gate with up, activation, down; V of another type is a launch next to that of q and k. At once:
  // attention with its merge, gate with up and the activation, and V of most other K types.
  for (const Model& m :
       {Model{DType::kQ8_0, DType::kQ8_0, 64, 10, 8}, Model{DType::kQ8_0, DType::kQ8_0, 128, 10, 8},
        Model{DType::kF16, DType::kF16, 128, 10, 8}, Model{DType::kQ4_K, DType::kQ6_K, 128, 11, 8},
        Model{DType::kQ8_0, DType::kF16, 128, 11, 9}}) {
    CAPTURE(kernels::info(m.type).name);
    const auto run = [&](const OpTable& table, int32_t layers) {
      const LlamaShape shape = {.name = "one row",
                                .layers = layers,
                                .width = 256,
                                .ffn = 256,
                                .heads = 4,
                                .head_dim = m.head_dim,
                                .rope_dim = m.head_dim};
      const OwnedFile file(RandomLlama(shape, 3).file_bytes(m.type, m.v_type));
      return run_steps(table, file, 500, kSteps);  // a context of two splits
    };
    const Steps one = run(one_by_one(ops), 1);
    const Steps two = run(one_by_one(ops), 2);
    CHECK(run(without_pairs(one_by_one(ops)), 2).logits == two.logits);
    CHECK(run(ops, 2).logits == two.logits);  // captured
    if (counted()) CHECK(two.launches - one.launches == kSteps * m.launches);

    const Steps one_at_once = run(one_by_one(at_once), 1);
    const Steps two_at_once = run(one_by_one(at_once), 2);
    CHECK(two_at_once.logits == two.logits);
    CHECK(run(at_once, 2).logits == two.logits);
    if (counted()) {
      CHECK(two_at_once.launches - one_at_once.launches == kSteps * m.launches_at_once);
    }
  }
}

TEST_CASE("engine: steps are captured again after their scratch moved") {
  HEARTH_CUDA_TABLE(ops);
  const auto want = serve(one_by_one(ops));
  const OwnedFile file = model_file(1);
  EngineRun run(file.file, ops, config());
  CHECK(run.ask(request(1, 3, 22)).tokens.at(0) == want.at(0));
  // A wider weight of another model, such as a draft model's.
  const auto wider =
      pack(ops, {random_tensor(5, DType::kQ8_0, 16, 8192)}, kernels::WeightRole::kMatmul);
  const int64_t before = graph_launches();
  CHECK(run.ask(request(5, 8, 6)).tokens.at(0) == want.at(4));
  if (counted()) CHECK(graph_launches() > before);
  // Without memory for it the step still runs.
  const auto widest =
      pack(ops, {random_tensor(6, DType::kQ8_0, 16, 16384)}, kernels::WeightRole::kMatmul);
  const int64_t refused_from = graph_launches();
  const bool refused = refuse_capture(CapturePart::kInstantiate);
  CHECK(run.ask(request(3, 15, 4)).tokens.at(0) == want.at(2));
  refuse_capture(CapturePart::kNone);
  if (refused) CHECK(graph_launches() == refused_from);
}

TEST_CASE(
    "engine: serves the same tokens without memory for captured steps or page-locked memory") {
  HEARTH_CUDA_TABLE(ops);
  const auto want = serve(one_by_one(ops));
  for (const CapturePart part : {CapturePart::kInstantiate, CapturePart::kUpload}) {
    const int64_t before = graph_launches();
    const bool refused = refuse_capture(part);  // none is captured
    CHECK(serve(ops) == want);
    if (refused) CHECK(graph_launches() == before);
  }
  refuse_capture(CapturePart::kNone);
  OpTable refusing = ops;
  refusing.allocate_host = [](void*, size_t) -> void* { return nullptr; };
  CHECK(serve(refusing) == want);
  // Or for a part of the memory shared by host and device.
  static int left;
  static void* (*real)(void*, size_t);
  real = ops.allocate_host;
  for (const int most : {3}) {
    left = most;
    OpTable scarce = ops;
    scarce.allocate_host = [](void* state, size_t bytes) -> void* {
      return left-- > 0 ? real(state, bytes) : nullptr;
    };
    CHECK(serve(scarce) == want);
  }
}

TEST_CASE("engine: tokens drawn on the device equal those drawn on the host") {
  HEARTH_CUDA_TABLE(ops);
  OpTable on_host = ops;
  on_host.draw = nullptr;
  struct Way {
    float temperature;
    int32_t top_k;
    float top_p;
    float min_p;
    bool on_device;
  };
  for (const Way& way : {Way{0, 40, 0.95f, 0, true},     // greedy
                         Way{0.8f, 0, 1, 0, true},       // from all
                         Way{0.8f, 40, 0.95f, 0, true},  // the default
                         Way{0.8f, 65, 1, 0, false}}) {
    CAPTURE(way.temperature);
    CAPTURE(way.top_k);
    engine::SamplingParams sampling;
    sampling.temperature = way.temperature;
    sampling.top_k = way.top_k;
    sampling.top_p = way.top_p;
    sampling.min_p = way.min_p;
    sampling.seed = 99;
    const auto serve_two = [&](const OpTable& table) {
      const OwnedFile file = model_file(1);
      EngineRun run(file.file, table, config());
      for (engine::Request r : {request(1, 3, 6), request(2, 5, 4)}) {
        r.sampling = sampling;
        run.submit(r);
      }
      run.run_until_idle();
      return std::vector{run.answer(1).tokens, run.answer(2).tokens};
    };
    const auto want = serve_two(on_host);
    const int64_t before = bytes_to_host();
    CHECK(serve_two(ops) == want);
    if (counted()) CHECK((bytes_to_host() == before) == way.on_device);
  }
  // A request that needs logits gets them, in a batch with one that does not.
  const auto mixed = [](const OpTable& table) {
    const OwnedFile file = model_file(1);
    EngineRun run(file.file, table, config());
    engine::Request penalized = request(1, 12, 9);
    penalized.sampling.repetition_penalty = 1.3f;
    engine::Request several = request(2, 9, 6);
    several.n = 3;
    engine::Request greedy = request(3, 5, 9);
    greedy.sampling.temperature = 0;
    greedy.min_tokens = 4;
    greedy.stop_ids = {1, 2, 3};
    for (const engine::Request& r : {penalized, several, greedy}) run.submit(r);
    run.run_until_idle();
    return std::vector{run.answer(1).tokens, run.answer(2).tokens, run.answer(3).tokens};
  };
  CHECK(mixed(ops) == mixed(on_host));
}

TEST_CASE("engine: drafts are verified with tokens drawn on the device") {
  HEARTH_CUDA_TABLE(ops);
  OpTable on_host = ops;
  on_host.draw = nullptr;
  const OwnedFile file = model_file(1);
  uint64_t drafted = 0;
  const auto tokens = [&](const OpTable& table, float temperature) {
    engine::EngineConfig c = config();
    c.speculation.enabled = true;
    c.speculation.fixed_width = 3;
    EngineRun run(file.file, table, c);
    engine::Request r = request(1, 6, 40);
    const std::vector<int32_t> once = r.prompt;
    for (int i = 0; i < 3; ++i) r.prompt.insert(r.prompt.end(), once.begin(), once.end());
    r.sampling.temperature = temperature;
    r.sampling.seed = 5;
    run.submit(r);
    run.run_until_idle();
    drafted = run.engine().snapshot().speculation.drafted_tokens;
    return run.answer(1).tokens;
  };
  for (const float temperature : {0.0f}) {
    CAPTURE(temperature);
    const auto want = tokens(on_host, temperature);
    const int64_t before = bytes_to_host();
    CHECK(tokens(ops, temperature) == want);
    if (counted()) CHECK(bytes_to_host() == before);
    CHECK(drafted > 0);
  }
}

TEST_CASE("engine: branches of drafts give the same tokens, drawn on the device or on the host") {
  HEARTH_CUDA_TABLE(ops);
  OpTable on_host = ops;
  on_host.draw = nullptr;
  const OwnedFile file = model_file(1);
  engine::EngineConfig c = config();
  c.speculation.enabled = false;
  std::vector<engine::Request> asked;
  for (int id = 1; id <= 2; ++id) {
    asked.push_back(request(static_cast<engine::RequestId>(id), 13 + id, 30));
    asked.back().sampling.temperature = id == 2 ? 0.9f : 0.0f;
    asked.back().sampling.seed = 5;
  }
  const auto tokens = [&](const OpTable& table, std::unique_ptr<engine::Proposer> proposer) {
    EngineRun run(file.file, table, c, std::move(proposer));
    for (const engine::Request& r : asked) run.submit(r);
    run.run_until_idle();
    const engine::SpeculationCounts counts = run.engine().snapshot().speculation;
    CHECK((counts.accepted_tokens > 20) == c.speculation.enabled);
    return std::vector{run.answer(1).tokens.at(0), run.answer(2).tokens.at(0)};
  };
  const auto want = tokens(ops, nullptr);
  c.speculation.enabled = true;
  c.speculation.lookup = false;
  c.speculation.fixed_width = 3;
  for (const OpTable& table : {ops, on_host}) {
    // Its rivals are right at two of three positions where the chain is wrong.
    auto replay = std::make_unique<engine::ReplayProposer>(
        engine::ReplayProposer::random_pattern(0.5, 97, 3), kShape.vocab);
    for (const engine::Request& r : asked) replay->know(r.id, 0, want[r.id - 1]);
    CHECK(tokens(table, std::move(replay)) == want);
  }
}

}  // namespace hearth::tests
