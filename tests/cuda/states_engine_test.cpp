// The engine with layers that have a state, on the CUDA table: captured steps, batches, chunks,
// drafts with their replays, snapshots and memory that is taken as planned.

#include <doctest/doctest.h>

#include <algorithm>
#include <iterator>

#include "engine/engine.h"
#include "engine/kv/memory_plan.h"
#include "engine/speculation/replay_proposer.h"
#include "engine/steps/model_runner.h"
#include "tests/cuda/rig.h"
#include "tests/golden/engine/engine_run.h"
#include "tests/golden/family_model.h"
#include "tests/golden/random_llama.h"
#include "tests/skip.h"

namespace hearth::tests {

using namespace golden;  // NOLINT

namespace {

constexpr int32_t kVocab = 128;

/// One with each kind of scan, and with and without attention next to it.
constexpr const char* kFamilies[] = {"qwen35", "mamba",  "falcon_h1",  "lfm2",
                                     "rwkv7",  "plamo2", "minimax_01", "kimi_linear"};

engine::EngineConfig config() {
  engine::EngineConfig c;
  c.context_length = 96;
  c.kv_bytes = 4 << 20;
  c.scheduler.max_seqs = 4;
  c.scheduler.max_step_tokens = 24;
  c.speculation.enabled = false;
  return c;
}

std::vector<engine::Request> requests() {
  std::vector<engine::Request> out;
  for (const auto& [prompt, output] : {std::pair{37, 12}, {3, 20}, {20, 9}}) {
    engine::Request r;
    r.id = out.size() + 1;
    r.owner = r.cache_salt = "uid:1000";
    r.prompt = random_tokens(prompt, kVocab, static_cast<uint32_t>(r.id));
    r.max_tokens = output;
    r.sampling.temperature = r.id == 2 ? 0.9f : 0.0f;
    r.sampling.seed = r.id;
    out.push_back(std::move(r));
  }
  return out;
}

using Texts = std::vector<std::vector<int32_t>>;

/// All requests at once, two steps apart.
Texts serve(EngineRun& run) {
  for (const engine::Request& r : requests()) {
    run.submit(r);
    run.step();
    run.step();
  }
  run.run_until_idle();
  Texts out;
  for (const engine::Request& r : requests()) {
    CHECK_FALSE(run.answer(r.id).failed);
    out.push_back(run.answer(r.id).tokens.at(0));
  }
  return out;
}

}  // namespace

TEST_CASE("engine: layers with a state give the same tokens in every way of computing them") {
  HEARTH_CUDA_TABLE(ops);
  OpTable one_by_one = ops;
  one_by_one.begin_capture = nullptr;
  int number = 0;
  for (const char* family : kFamilies) {
    if (kSanitized && number++ % 2 == 1) continue;  // the release build checks all
    CAPTURE(family);
    const OwnedFile file(read_family(family).file_bytes(DType::kQ8_0));
    Texts want;
    for (const engine::Request& r : requests()) {
      want.push_back(EngineRun(file.file, one_by_one, config()).ask(r).tokens.at(0));
    }
    {
      INFO("together, in captured steps");
      const auto before = runtime_counts();
      EngineRun run(file.file, ops, config());
      CHECK(serve(run) == want);
      if (before) CHECK(runtime_counts()->graph_launches > before->graph_launches);
      INFO("again, from a snapshot");
      engine::Request again = requests()[0];
      again.id = 9;
      const EngineAnswer answer = run.ask(again);
      CHECK(answer.cached_tokens > 0);
      CHECK(answer.tokens.at(0) == want[0]);
    }
    {
      INFO("in chunks");
      engine::EngineConfig chunked = config();
      chunked.scheduler.max_step_tokens = 5;
      EngineRun run(file.file, ops, chunked);
      CHECK(serve(run) == want);
    }
    {
      INFO("with drafts, some of them right");
      auto proposer = std::make_unique<engine::ReplayProposer>(
          std::vector<bool>{true, true, false, true, true}, kVocab);
      for (size_t i = 0; i < want.size(); ++i) proposer->know(i + 1, 0, want[i]);
      engine::EngineConfig drafted = config();
      drafted.speculation.enabled = true;
      drafted.speculation.fixed_width = 3;
      EngineRun run(file.file, ops, drafted, std::move(proposer));
      CHECK(serve(run) == want);
      const engine::SpeculationCounts counts = run.engine().snapshot().speculation;
      CHECK(counts.accepted_tokens > 0);
      CHECK(counts.drafted_tokens > counts.accepted_tokens);
    }
  }
}

TEST_CASE("engine: EAGLE-3 heads and DFlash drafters draft, change no token, and take their plan") {
  HEARTH_CUDA_TABLE(ops);
  std::vector<DrafterModel> heads = read_drafters("eagle3");
  std::ranges::move(read_drafters("dflash"), std::back_inserter(heads));
  for (const DrafterModel& head : heads) {
    CAPTURE(head.model.name);
    const OwnedFile file(read_family(head.target).file_bytes(DType::kQ8_0));
    const OwnedFile with(head.file_bytes(DType::kQ8_0));
    const models::LoadOptions options{.heads = &with.file};
    EngineRun plain(file.file, ops, config());
    const Texts want = serve(plain);
    engine::EngineConfig drafted = config();
    drafted.speculation.enabled = true;
    drafted.speculation.lookup = false;
    drafted.speculation.fixed_width = 3;
    {
      EngineRun run(file.file, ops, drafted, nullptr, options);
      CHECK(serve(run) == want);
      const engine::SpeculationCounts counts = run.engine().snapshot().speculation;
      const bool eagle3 = head.model.architecture == "eagle3";
      const auto kind = eagle3 ? engine::DraftedBy::kEagle3 : engine::DraftedBy::kDFlash;
      CHECK(counts.drafted_by[static_cast<size_t>(kind)] > 20);
    }
    auto model = models::load_model(file.file, ops, nullptr, options).value();
    const engine::MemoryPlan plan = engine::plan_memory(drafted, *model, 1 << 24).value();
    const auto before = runtime_counts();
    const auto runner =
        engine::ModelRunner::create(plan, DType::kF16, ops, std::move(model)).value();
    if (before) CHECK(runtime_counts()->bytes_in_use - before->bytes_in_use == plan.total_bytes());
  }
}

TEST_CASE("engine: the memory of states on the device is taken as planned") {
  HEARTH_CUDA_TABLE(ops);
  const OwnedFile file(read_family("qwen35").file_bytes(DType::kQ8_0));
  auto loaded = models::load_model(file.file, ops, nullptr);
  REQUIRE(loaded.ok());
  auto model = std::move(loaded).value();
  const engine::MemoryPlan plan = engine::plan_memory(config(), *model, 1 << 24).value();
  REQUIRE(plan.groups.size() == 2);
  const engine::GroupPlan& states = plan.groups.back();
  CHECK(states.block_bytes == model->info().groups.back().block_bytes(DType::kF16, 16));
  // A sequence's state, its snapshot and a new one, for each of the sequences.
  CHECK(states.num_blocks >= 3 * config().scheduler.max_seqs);
  const auto before = runtime_counts();
  const auto runner = engine::ModelRunner::create(plan, DType::kF16, ops, std::move(model)).value();
  if (before) CHECK(runtime_counts()->bytes_in_use - before->bytes_in_use == plan.total_bytes());
}

}  // namespace hearth::tests
