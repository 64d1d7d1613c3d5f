// What listeners receive about the engine, and that nothing is computed without listeners.

#include "engine/steps/step_record.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "engine/scheduling/scheduler.h"

namespace hearth::engine {
namespace {

struct Rig {
  SchedulerConfig config;
  KvCache kv{16, std::vector<KvGroup>{{64, 0}}};
  Scheduler scheduler{config, {1024, config.max_step_tokens, config.max_seqs + 32}, kv};
  FakeClock clock;
  StepRecorder recorder{clock};
  uint64_t steps = 0;

  void add(RequestId id, int32_t prompt, int32_t first_token) {
    Request request;
    request.id = id;
    request.owner = "a";
    request.max_tokens = 8;
    for (int32_t i = 0; i < prompt; ++i) request.prompt.push_back(first_token + i);
    REQUIRE(scheduler.add(request, "scope").ok());
  }
  const StepPlan& step() {
    const StepPlan& plan = scheduler.plan();
    scheduler.stored(plan);
    for (const PlannedRows& rows : plan.rows) {
      Sequence& seq = *rows.seq;
      if (rows.first + rows.count < static_cast<int32_t>(seq.tokens.size())) continue;
      if (!seq.request->forked) scheduler.fork(*seq.request);
      scheduler.append(seq, 1);
    }
    scheduler.finish_step(plan, 1000);
    ++steps;
    if (recorder.on()) {
      recorder.add(plan, scheduler, steps, static_cast<int64_t>(steps) * 1000, 1000, 0);
    }
    return plan;
  }
  /// Steps until one decodes this many sequences and nothing else.
  void run_until_decoding(int32_t sequences) {
    for (int i = 0; i < 20; ++i) {
      const StepPlan& plan = step();
      if (plan.num_decode_rows == sequences && plan.num_tokens == sequences) return;
    }
    FAIL("they never decode together");
  }
};

TEST_CASE("a step's record: prefill by request, then decode; blocks with their owners") {
  Rig rig;
  rig.recorder.watch(true);
  rig.add(5, 40, 100);
  rig.add(6, 20, 300);
  rig.run_until_decoding(2);
  const auto watch = rig.recorder.take(rig.scheduler, rig.kv, 0, {});
  REQUIRE(watch->steps.size() == rig.steps);
  int32_t prefilled = 0;
  for (const StepRecord& step : watch->steps) {
    for (const StepChunk& chunk : step.prefills) {
      CHECK((chunk.request == 5 || chunk.request == 6));
      prefilled += chunk.tokens;
    }
  }
  CHECK(prefilled == 60);
  CHECK(watch->steps.back().decode_rows == 2);
  CHECK(watch->steps.back().prefills.empty());
  CHECK(watch->steps.back().running == 2);
  REQUIRE(watch->pools.size() == 1);
  int used_by_5 = 0, used_by_6 = 0, cached = 0, free_blocks = 0;
  for (const BlockCell& cell : watch->pools[0]) {
    used_by_5 += cell.request == 5 ? 1 : 0;
    used_by_6 += cell.request == 6 ? 1 : 0;
    cached += cell.state == BlockState::kCached ? 1 : 0;
    free_blocks += cell.state == BlockState::kFree ? 1 : 0;
  }
  CHECK(used_by_5 == 3);  // 41 tokens
  CHECK(used_by_6 == 2);
  CHECK(cached == 0);
  CHECK(free_blocks == 59);
  REQUIRE(watch->requests.size() == 2);
  CHECK(watch->requests[0].prompt_tokens == 40);
  CHECK(watch->requests[0].prompt_done == 40);
  rig.scheduler.remove(*rig.scheduler.find(5));
  rig.clock.advance_us(StepRecorder::kMapEveryUs);
  const auto after = rig.recorder.take(rig.scheduler, rig.kv, 0, {});
  CHECK(after->steps.empty());
  cached = 0;
  for (const BlockCell& cell : after->pools[0]) cached += cell.state == BlockState::kCached;
  CHECK(cached == 2);  // the full blocks of the prompt stay
}

TEST_CASE("maps are sent at most as often as allowed, and the tree between them") {
  Rig rig;
  rig.recorder.watch(true);
  rig.add(5, 64, 100);
  rig.run_until_decoding(1);
  CHECK(rig.recorder.take(rig.scheduler, rig.kv, 2, {})->pools.size() == 1);
  const auto tree = rig.recorder.take(rig.scheduler, rig.kv, 2, {});
  CHECK(tree->pools.empty());
  REQUIRE(tree->has_prefixes);
  // Four blocks in one line, split where chunks of two end.
  REQUIRE(tree->prefixes.size() == 2);
  const PrefixRun& front = tree->prefixes[tree->prefixes[0].end_block == 2 ? 0 : 1];
  const PrefixRun& back = tree->prefixes[tree->prefixes[0].end_block == 2 ? 1 : 0];
  CHECK(front.end_block == 2);
  CHECK(front.num_blocks == 2);
  CHECK(front.in_use == 2);
  CHECK(back.end_block == 4);
  CHECK(back.parent == front.name);
  CHECK(prefix_runs(rig.kv, 0, 100).size() == 1);
  CHECK(prefix_runs(rig.kv, 2, 1).size() == 1);
  const auto none = rig.recorder.take(rig.scheduler, rig.kv, 2, {});
  CHECK(none->pools.empty());
  CHECK_FALSE(none->has_prefixes);
  rig.clock.advance_us(StepRecorder::kMapEveryUs);
  CHECK(rig.recorder.take(rig.scheduler, rig.kv, 2, {})->pools.size() == 1);
}

TEST_CASE("cached blocks of pinned chunks are marked") {
  Rig rig;
  rig.recorder.watch(true);
  rig.add(5, 65, 100);
  rig.run_until_decoding(1);
  const std::vector<PrefixRun> runs = prefix_runs(rig.kv, 2, 100);
  REQUIRE(runs.size() == 2);
  const PrefixRun& front = runs[runs[0].end_block == 2 ? 0 : 1];
  rig.scheduler.remove(*rig.scheduler.find(5));
  const PinnedChunk chunks[] = {{front.name, 2}, {Hash128{1, 2}, 2}, {front.name, 1000}};
  const auto pinned = [&](std::span<const PinnedChunk> of) {
    const auto watch = rig.recorder.take(rig.scheduler, rig.kv, 2, of);
    rig.clock.advance_us(StepRecorder::kMapEveryUs);
    return std::ranges::count(watch->pools[0], BlockState::kPinned, &BlockCell::state);
  };
  CHECK(pinned({}) == 0);
  CHECK(pinned(std::span(chunks).first(1)) == 2);
  CHECK(pinned(std::span(chunks).subspan(1, 1)) == 0);  // it is not in memory
  CHECK(pinned(chunks) == 2);
  (void)rig.recorder.take(rig.scheduler, rig.kv, 2, chunks);
  const auto tree = rig.recorder.take(rig.scheduler, rig.kv, 2, chunks);
  for (const PrefixRun& run : tree->prefixes) CHECK(run.pinned == (run.name == front.name));
}

TEST_CASE("blocks that moved between tiers are reported once") {
  Rig rig;
  CHECK(rig.recorder.moved() == nullptr);
  rig.recorder.watch(true);
  rig.add(5, 40, 100);
  rig.run_until_decoding(1);
  const int32_t block = rig.scheduler.find(5)->samples.front()->blocks.tables[0][1];
  rig.recorder.moved()->push_back({0, block});
  const auto moving = rig.recorder.take(rig.scheduler, rig.kv, 0, {});
  CHECK(moving->pools[0][static_cast<size_t>(block)].state == BlockState::kMoving);
  rig.clock.advance_us(StepRecorder::kMapEveryUs);
  const auto after = rig.recorder.take(rig.scheduler, rig.kv, 0, {});
  CHECK(after->pools[0][static_cast<size_t>(block)].state == BlockState::kUsed);
}

TEST_CASE("without listeners nothing is called or kept; the ring is bounded") {
  Rig rig;
  rig.add(5, 40, 100);
  for (int i = 0; i < 5; ++i) rig.step();
  CHECK(rig.recorder.calls() == 0);
  rig.recorder.watch(true);
  rig.step();
  CHECK(rig.recorder.calls() == 1);
  rig.recorder.watch(false);
  rig.step();
  CHECK(rig.recorder.calls() == 1);
  rig.recorder.watch(true);
  // The earlier ones are gone.
  CHECK(rig.recorder.take(rig.scheduler, rig.kv, 0, {})->steps.empty());
  StepPlan plan;
  for (size_t i = 0; i < StepRecorder::kMaxSteps + 10; ++i) {
    rig.recorder.add(plan, rig.scheduler, i, 0, 0, 0);
  }
  const auto watch = rig.recorder.take(rig.scheduler, rig.kv, 0, {});
  CHECK(watch->steps.size() == StepRecorder::kMaxSteps);
  CHECK(watch->steps_dropped == 10);
}

}  // namespace
}  // namespace hearth::engine
