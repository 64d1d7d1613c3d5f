// Steps launched before the tokens of the previous one are known: the tokens equal those of an
// engine that waits for each step, whatever arrives, leaves or ends meanwhile.

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "kernels/ops/draw.h"
#include "tests/cuda/rig.h"
#include "tests/golden/engine/engine_run.h"
#include "tests/golden/family_model.h"
#include "tests/golden/random_adapter.h"
#include "tests/golden/random_llama.h"
#include "tests/op/op_testing.h"
#include "tests/skip.h"

namespace hearth::tests {

using namespace golden;  // NOLINT

namespace {

const LlamaShape kShape = {.name = "small", .layers = 1, .kv_heads = 2};

engine::EngineConfig config(bool run_ahead) {
  engine::EngineConfig c;
  c.context_length = 96;
  c.kv_bytes = 1 << 20;
  c.scheduler.max_seqs = 4;
  c.scheduler.max_step_tokens = 24;
  c.speculation.enabled = false;
  c.run_ahead = run_ahead;
  return c;
}

/// Greedy, or with a temperature where the id is even.
engine::Request request(engine::RequestId id, int32_t prompt, int32_t output) {
  engine::Request r;
  r.id = id;
  r.prompt = random_tokens(prompt, kShape.vocab, static_cast<uint32_t>(id));
  r.max_tokens = output;
  r.sampling.temperature = id % 2 == 0 ? 0.9f : 0.0f;
  r.sampling.top_k = 0;
  r.sampling.top_p = 1;
  r.sampling.seed = id * 77;
  return r;
}

struct Outcome {
  std::map<engine::RequestId, std::vector<std::vector<int32_t>>> tokens;
  uint64_t steps = 0;
  uint64_t ahead = 0;
};

Outcome outcome(EngineRun& run, engine::RequestId last) {
  run.run_until_idle();
  Outcome out;
  for (engine::RequestId id = 1; id <= last; ++id) {
    const EngineAnswer& answer = run.answer(id);
    CHECK(answer.ended);
    CHECK_FALSE(answer.failed);
    out.tokens[id] = answer.tokens;
  }
  const engine::EngineSnapshot snapshot = run.engine().snapshot();
  out.steps = snapshot.num_steps;
  out.ahead = snapshot.num_steps_ahead;
  return out;
}

/// Draws for positions divisible by five are left to the host.
OpTable unsure(OpTable ops) {
  static const kernels::DrawOps* real;
  static void (*copy)(void*, void*, const void*, size_t);
  real = ops.draw;
  copy = ops.copy_to_device;
  static kernels::DrawOps wrapped;
  wrapped = *real;
  wrapped.draw = [](void* state, const kernels::DrawArgs& args) {
    real->draw(state, args);
    for (int32_t i = 0; i < args.batch->num_outputs; ++i) {
      if (args.rows[i].position % 5 != 0) continue;
      // Copied during the call, as all pageable memory.
      const int32_t nothing = kernels::kNotDrawn;
      copy(state, args.tokens + i, &nothing, sizeof nothing);
    }
  };
  ops.draw = &wrapped;
  return ops;
}

class RandomAdapterFile final : public engine::AdapterFile {
 public:
  RandomAdapterFile(RandomLlama& model, size_t shape, uint32_t seed)
      : owned_(RandomAdapter(adapter_shapes()[shape], model, seed).file_bytes(DType::kF16)) {
    owned_.file.set_fingerprint(std::to_string(seed));
  }
  const models::GgufFile& file() const override { return owned_.file; }

 private:
  OwnedFile owned_;
};

}  // namespace

TEST_CASE("ahead: rows with adapters, which come and go with their requests") {
  HEARTH_CUDA_TABLE(ops);
  RandomLlama model(kShape, 1);
  const OwnedFile file(model.file_bytes(DType::kF16));
  const auto first = std::make_shared<RandomAdapterFile>(model, 0, 5);
  const auto second = std::make_shared<RandomAdapterFile>(model, 3, 6);
  const auto serve = [&](bool run_ahead) {
    EngineRun run(file.file, ops, config(run_ahead));
    engine::Request requests[] = {request(1, 3, 40), request(2, 30, 33), request(3, 15, 20),
                                  request(4, 9, 30)};
    requests[0].adapters = {{"first", first, 1}};
    requests[2].adapters = {{"second", second, 0.5f}, {"first", first, -1}};
    requests[3].adapters = {{"second", second, 1}};
    for (const engine::Request& each : requests) {
      run.submit(each);
      run.step();
      run.post(engine::DropAdapters{});
    }
    return outcome(run, 4);
  };
  const Outcome want = serve(false), got = serve(true);
  CHECK(got.tokens == want.tokens);
  CHECK(got.ahead > 0);
  // A row without one is that of an engine without any.
  EngineRun plain(file.file, ops, config(true));
  plain.submit(request(2, 30, 33));
  plain.run_until_idle();
  CHECK(plain.answer(2).tokens == want.tokens.at(2));
}

TEST_CASE("ahead: most decode steps are launched early and give the same tokens") {
  HEARTH_CUDA_TABLE(ops);
  const OwnedFile file(RandomLlama(kShape, 1).file_bytes(DType::kF16));
  const auto serve = [&](const OpTable& table, bool run_ahead) {
    EngineRun run(file.file, table, config(run_ahead));
    for (const auto& [id, prompt, output] : {std::tuple{1, 3, 40}, {2, 30, 33}, {3, 15, 20}}) {
      run.submit(request(static_cast<engine::RequestId>(id), prompt, output));
    }
    return outcome(run, 3);
  };
  const Outcome want = serve(ops, false);
  CHECK(want.ahead == 0);
  const Outcome got = serve(ops, true);
  CHECK(got.tokens == want.tokens);
  MESSAGE(got.ahead << " of " << got.steps << " steps were launched ahead");
  // How prompts are chunked, and so how often, depends on the duration of steps.
  CHECK(got.ahead >= 12);

  OpTable eager = ops;
  eager.begin_capture = nullptr;
  const Outcome one_by_one = serve(eager, true);
  CHECK(one_by_one.tokens == want.tokens);
  CHECK(one_by_one.ahead >= 12);
  OpTable unmarked = ops;
  unmarked.mark = nullptr;
  const Outcome waiting = serve(unmarked, true);
  CHECK(waiting.tokens == want.tokens);
  CHECK(waiting.ahead == 0);
}

TEST_CASE("ahead: a row whose draw the device leaves to the host is computed again") {
  HEARTH_CUDA_TABLE(ops);
  const OpTable table = unsure(ops);
  for (const int32_t window : {0, 24}) {
    CAPTURE(window);
    LlamaShape shape = kShape;
    shape.window = window;
    const OwnedFile file(RandomLlama(shape, 1).file_bytes(DType::kF16));
    const auto serve = [&](const OpTable& with, bool run_ahead) {
      EngineRun run(file.file, with, config(run_ahead));
      run.submit(request(1, 3, 40));
      run.submit(request(2, 7, 38));
      return outcome(run, 2);
    };
    const Outcome want = serve(ops, false);
    const Outcome got = serve(table, true);
    CHECK(got.tokens == want.tokens);
    CHECK(got.ahead > 10);
    CHECK(got.ahead < serve(ops, true).ahead);
  }
}

TEST_CASE("ahead: requests that need host sampling get it, and the others wait for them") {
  HEARTH_CUDA_TABLE(ops);
  const OwnedFile file(RandomLlama(kShape, 1).file_bytes(DType::kF16));
  const auto serve = [&](bool run_ahead) {
    EngineRun run(file.file, ops, config(run_ahead));
    engine::Request penalized = request(1, 12, 6);
    penalized.sampling.repetition_penalty = 1.3f;
    engine::Request several = request(2, 9, 30);
    several.n = 2;
    engine::Request best = request(3, 5, 5);
    best.sampling.temperature = 0.8f;
    best.sampling.top_k = 20;
    for (const engine::Request& r : {penalized, several, best}) run.submit(r);
    return outcome(run, 3);
  };
  const Outcome want = serve(false);
  const Outcome got = serve(true);
  CHECK(got.tokens == want.tokens);
  CHECK(got.ahead > 0);
}

TEST_CASE("ahead: requests arrive, end by stop tokens and are cancelled in any order") {
  HEARTH_CUDA_TABLE(ops);
  const int seeds = kernels::testing::full_counts() ? 60 : kSanitized ? 2 : 6;
  for (int seed = 1; seed <= seeds; ++seed) {
    CAPTURE(seed);
    LlamaShape shape = kShape;
    shape.window = seed % 3 == 0 ? 24 : 0;
    const OwnedFile file(RandomLlama(shape, 1).file_bytes(DType::kF16));
    constexpr engine::RequestId kLast = 9;
    engine::RequestId cancelled = 0;
    const auto serve = [&](bool run_ahead) {
      engine::EngineConfig c = config(run_ahead);
      c.scheduler.max_seqs = 3;
      // Little memory: some are preempted, and blocks change owners.
      c.kv_bytes = static_cast<uint64_t>(
          8 * kernels::kv_layer_bytes(DType::kF16, 16, kernels::KvShape::even(2, 16)));
      Random random(static_cast<uint64_t>(seed));
      EngineRun run(file.file, ops, c);
      for (engine::RequestId id = 1; id <= kLast; ++id) {
        engine::Request r = request(id, 1 + static_cast<int32_t>(random.next() % 34),
                                    1 + static_cast<int32_t>(random.next() % 30));
        if (id % 3 == 0) r.prompt = request(id - 1, 20, 1).prompt;  // begins like another request
        if (id % 4 == 1) r.stop_ids = {static_cast<int32_t>(random.next() % 96), 5, 6, 7, 8, 9};
        if (id % 5 == 2) r.priority = engine::Priority::kInteractive;
        run.submit(r);
        for (uint64_t steps = random.next() % 9; steps > 0; --steps) run.step();
        if (id == 6) {
          cancelled = 1 + random.next() % 6;
          run.post(engine::CancelRequest{cancelled});
        }
      }
      return outcome(run, kLast);
    };
    const Outcome want = serve(false);
    const Outcome got = serve(true);
    CHECK(got.ahead > 0);
    for (const auto& [id, tokens] : got.tokens) {
      CAPTURE(id);
      if (id != cancelled) {
        CHECK(tokens == want.tokens.at(id));
        continue;
      }
      // It may have been cancelled a step sooner or later.
      const std::vector<int32_t>& a = tokens.at(0);
      const std::vector<int32_t>& b = want.tokens.at(id).at(0);
      const auto common = static_cast<ptrdiff_t>(std::min(a.size(), b.size()));
      CHECK(std::equal(a.begin(), a.begin() + common, b.begin()));
    }
  }
}

TEST_CASE("ahead: starts after some steps without drafts, and ends when drafts come") {
  HEARTH_CUDA_TABLE(ops);
  const OwnedFile file(RandomLlama(kShape, 1).file_bytes(DType::kF16));
  const auto serve = [&](bool run_ahead, int32_t fixed_width) {
    engine::EngineConfig c = config(run_ahead);
    c.speculation.enabled = true;
    c.speculation.fixed_width = fixed_width;
    EngineRun run(file.file, ops, c);
    engine::Request r = request(1, 6, 60);
    const std::vector<int32_t> once = r.prompt;
    for (int i = 0; i < 3; ++i) r.prompt.insert(r.prompt.end(), once.begin(), once.end());
    run.submit(r);
    run.submit(request(2, 20, 70));
    return outcome(run, 2);
  };
  const Outcome want = serve(false, 0);
  const Outcome got = serve(true, 0);
  CHECK(got.tokens == want.tokens);
  CHECK(got.ahead > 0);
  // Requests that force verification have each draft verified.
  const Outcome fixed = serve(true, 3);
  CHECK(fixed.tokens == want.tokens);
  CHECK(fixed.ahead == 0);
}

TEST_CASE("ahead: models with a state give the same tokens, whatever comes, ends or is left over") {
  HEARTH_CUDA_TABLE(ops);
  const OpTable left_over = unsure(ops);
  // Of three seeds one speculates. By default each family has one.
  int first = 0;
  for (const char* family :
       {"qwen35", "mamba", "falcon_h1", "lfm2", "minimax_01", "rwkv7", "plamo2", "kimi_linear"}) {
    CAPTURE(family);
    const OwnedFile file(read_family(family).file_bytes(DType::kQ8_0));
    first = first % 3 + 1;
    const int last = kernels::testing::full_counts() ? 4 : first;
    for (int seed = kernels::testing::full_counts() ? 1 : first; seed <= last; ++seed) {
      CAPTURE(seed);
      constexpr engine::RequestId kLast = 7;
      const auto serve = [&](const OpTable& table, bool run_ahead) {
        engine::EngineConfig c = config(run_ahead);
        c.kv_bytes = 4 << 20;
        c.scheduler.max_seqs = 3;
        c.speculation.enabled = seed % 3 == 2;  // by lookup
        Random random(static_cast<uint64_t>(seed));
        EngineRun run(file.file, table, c);
        for (engine::RequestId id = 1; id <= kLast; ++id) {
          engine::Request r = request(id, 1 + static_cast<int32_t>(random.next() % 40),
                                      10 + static_cast<int32_t>(random.next() % 40));
          if (id % 3 == 0) r.prompt = request(id - 1, 40, 1).prompt;  // begins like another one
          if (id % 4 == 1) r.stop_ids = {static_cast<int32_t>(random.next() % 96), 5, 6, 7, 8, 9};
          if (id == 5) r.n = 2;
          run.submit(r);
          for (uint64_t steps = random.next() % 24; steps > 0; --steps) run.step();
        }
        Outcome out = outcome(run, kLast);
        // The end of an answer is in the cache, as it was computed.
        engine::Request more = request(kLast + 1, 1, 12);
        more.prompt = request(2, 40, 1).prompt;
        more.prompt.insert(more.prompt.end(), out.tokens[2][0].begin(), out.tokens[2][0].end());
        more.prompt.resize(std::min<size_t>(more.prompt.size(), 64));
        out.tokens[kLast + 1] = run.ask(more).tokens;
        return out;
      };
      const Outcome want = serve(ops, false);
      CHECK(want.ahead == 0);
      const Outcome got = serve(ops, true);
      CHECK(got.tokens == want.tokens);
      CHECK(got.ahead > 5);  // how many depends on how fast the device is
      const Outcome left = serve(left_over, true);
      CHECK(left.tokens == want.tokens);
      CHECK(left.ahead > 0);
    }
  }
}

TEST_CASE("gaps: the device's idle time between two steps, launched ahead or not") {
  HEARTH_CUDA_TABLE(ops);
  const OwnedFile file(RandomLlama(kShape, 1).file_bytes(DType::kF16));
  for (const bool run_ahead : {false, true}) {
    CAPTURE(run_ahead);
    EngineRun run(file.file, ops, config(run_ahead));
    run.engine().time_gaps();
    run.submit(request(1, 3, 40));
    run.submit(request(2, 5, 30));
    run.run_until_idle();
    const engine::EngineSnapshot snapshot = run.engine().snapshot();
    CHECK((snapshot.num_steps_ahead > 0) == run_ahead);
    const std::vector<double> gaps = run.engine().take_gaps();
    CHECK(gaps.size() == snapshot.num_steps - 1);
    CHECK(std::ranges::all_of(gaps, [](double us) { return us >= 0; }));
    CHECK(run.engine().take_gaps().empty());
  }
  EngineRun on_host(file.file, kernels::reference_ops(), config(true));
  on_host.engine().time_gaps();
  on_host.ask(request(1, 3, 4));
  CHECK(on_host.engine().take_gaps().empty());
}

}  // namespace hearth::tests
