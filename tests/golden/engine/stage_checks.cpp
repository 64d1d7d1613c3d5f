#include "tests/golden/engine/stage_checks.h"

#include <doctest/doctest.h>

#include <utility>

#include "engine/speculation/replay_proposer.h"
#include "tests/golden/random_llama.h"

namespace hearth::golden {

using namespace engine;

EngineConfig stages_config() {
  EngineConfig config;
  config.kv_bytes = 8 << 20;
  config.speculation.enabled = false;
  config.context_length = 256;
  config.scheduler.max_seqs = 8;
  return config;
}

Request stages_request(RequestId id, int32_t prompt_size, uint32_t seed) {
  Request request;
  request.id = id;
  request.owner = request.cache_salt = "uid:1000";
  request.prompt = random_tokens(prompt_size, kStagesVocab, seed);
  request.max_tokens = 16;
  request.sampling.temperature = seed % 2 == 0 ? 0.0f : 0.9f;
  request.sampling.seed = seed;
  return request;
}

EngineRun StagedSource::run(const EngineConfig& config, std::unique_ptr<Proposer> proposer) const {
  StagedRun made = load();
  return EngineRun(std::move(made.model), made.table, config, std::move(proposer));
}

namespace {

using Tokens = std::vector<std::vector<int32_t>>;

void check_chunks(const StagedSource& staged, const Request& request, const Tokens& want) {
  for (const int32_t chunk : {1, 7, 33, 512}) {
    CAPTURE(chunk);
    EngineConfig config = stages_config();
    config.scheduler.max_step_tokens = chunk;
    CHECK(staged.run(config).ask(request).tokens == want);
  }
  EngineConfig whole = stages_config();
  whole.scheduler.chunked_prefill = false;
  CHECK(staged.run(whole).ask(request).tokens == want);
}

void check_batched_and_cached(const StagedSource& staged, const Request& request,
                              const Tokens& want) {
  EngineRun run = staged.run(stages_config());
  for (RequestId id = 2; id <= 6; ++id) {
    run.submit(stages_request(id, staged.rows / 8 * static_cast<int32_t>(id),
                              static_cast<uint32_t>(id + 10)));
    if (id == 4) run.submit(request);
    run.step();
  }
  run.run_until_idle();
  CHECK(run.answer(1).tokens == want);
  Request again = request;
  again.id = 7;
  const EngineAnswer cached = run.ask(again);
  CHECK(cached.cached_tokens > 0);
  CHECK(cached.tokens == want);
}

void check_preempted(const StagedSource& staged, const Request& request, const Tokens& want) {
  EngineConfig single = stages_config();
  single.scheduler.max_seqs = 1;
  EngineRun run = staged.run(single);
  Request batch = request;
  batch.priority = Priority::kBatch;
  run.submit(batch);
  while (run.answer(1).tokens.back().size() < 5) run.step();
  Request urgent = stages_request(2, 20, 77);
  urgent.priority = Priority::kInteractive;
  run.submit(urgent);
  run.run_until_idle();
  CHECK(run.answer(1).preemptions > 0);
  CHECK(run.answer(1).tokens == want);
}

// A cancelled prompt's rows may still be on their way when its blocks are taken again.
void check_after_cancel(const StagedSource& staged, const Request& request, const Tokens& want) {
  EngineConfig small = stages_config();
  small.scheduler.max_step_tokens = 64;
  small.prefix_cache = false;
  EngineRun run = staged.run(small);
  run.submit(stages_request(2, staged.rows + 50, 5));
  run.step();
  run.post(CancelRequest{2});
  run.step();
  CHECK(run.ask(request).tokens == want);
}

void check_drafts(const StagedSource& staged, const Request& request, const Tokens& want) {
  auto proposer = std::make_unique<ReplayProposer>(
      std::vector<bool>{true, true, false, true, true, true, false, true}, kStagesVocab);
  proposer->know(1, 0, want.front());
  EngineConfig wide = stages_config();
  wide.speculation.enabled = true;
  wide.speculation.fixed_width = 4;
  EngineRun run = staged.run(wide, std::move(proposer));
  Request other = stages_request(2, 70, 8);
  other.sampling.logit_bias = {{5, 50.0f}, {6, 50.0f}};  // lookup drafts what repeats
  run.submit(other);
  run.submit(request);
  run.run_until_idle();
  CHECK(run.answer(1).tokens == want);
  CHECK(run.engine().snapshot().speculation.accepted_tokens > 0);
}

}  // namespace

void check_stages(const StagedSource& staged, const AskOne& ask_one) {
  INFO(staged.name);
  const Request request = stages_request(1, staged.rows, 3);
  const Tokens want = ask_one(request);
  check_chunks(staged, request, want);
  check_batched_and_cached(staged, request, want);
  check_preempted(staged, request, want);
  check_after_cancel(staged, request, want);
  check_drafts(staged, request, want);
}

}  // namespace hearth::golden
