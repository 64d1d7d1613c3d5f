#include "engine/scheduling/scheduler.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace hearth::engine {
namespace {

/// A scheduler over one full group, stepped by hand: every planned row is "computed", every
/// sequence at its end draws token 1.
class Bench {
 public:
  explicit Bench(int32_t num_blocks, SchedulerConfig scheduler_config = {})
      : config(scheduler_config),
        kv(16, std::vector<KvGroup>{{num_blocks, 0}}),
        scheduler(config, {1024, config.max_step_tokens, config.max_seqs + 32}, kv) {}

  LiveRequest& add(RequestId id, int32_t prompt, int32_t max_tokens,
                   Priority priority = Priority::kNormal, const std::string& owner = "a",
                   int32_t first_token = 0, int32_t n = 1) {
    Request request;
    request.id = id;
    request.owner = owner;
    request.priority = priority;
    request.max_tokens = max_tokens;
    request.n = n;
    for (int32_t i = 0; i < prompt; ++i) request.prompt.push_back(first_token + i);
    return **scheduler.add(request, "scope");
  }

  /// Ids of the requests that had rows.
  std::vector<RequestId> step(int64_t step_us = 1000) {
    const StepPlan& plan = scheduler.plan();
    std::vector<RequestId> ids;
    for (const PlannedRows& rows : plan.rows) ids.push_back(rows.seq->request->request.id);
    scheduler.stored(plan);
    std::vector<LiveRequest*> finished;
    for (const PlannedRows& rows : plan.rows) {
      if (rows.seq->num_pending() > 0) continue;
      LiveRequest& live = *rows.seq->request;
      if (!live.forked) {
        scheduler.fork(live);
        for (const auto& seq : live.samples) scheduler.append(*seq, 1);
        continue;
      }
      scheduler.append(*rows.seq, 1);
      if (static_cast<int32_t>(rows.seq->tokens.size()) <
          live.prompt_size() + live.request.max_tokens) {
        continue;
      }
      scheduler.finish(*rows.seq, FinishReason::kLength);
      finished.push_back(&live);
    }
    num_tokens = plan.num_tokens;
    num_decode_rows = plan.num_decode_rows;
    scheduler.finish_step(plan, step_us);
    for (LiveRequest* live : finished) scheduler.remove(*live);
    scheduler.check_integrity();
    return ids;
  }

  const SchedulerConfig config;
  KvCache kv;
  Scheduler scheduler;
  int32_t num_tokens = 0;
  int32_t num_decode_rows = 0;
};

using Ids = std::vector<RequestId>;

/// Ends the step by hand: each row draws token 1.
void draw_all(Bench& bench, const StepPlan& plan) {
  bench.scheduler.stored(plan);
  for (const PlannedRows& rows : plan.rows) bench.scheduler.append(*rows.seq, 1);
  bench.scheduler.finish_step(plan, 1000);
}

Ids ids_of(const StepPlan& plan) {
  Ids ids;
  for (const PlannedRows& rows : plan.rows) ids.push_back(rows.seq->request->request.id);
  return ids;
}

TEST_CASE("decode rows with the same adapters are next to each other, in order of arrival") {
  Bench bench(64);
  const auto adapter = [](int32_t number) {
    return std::make_shared<LoadedAdapter>(LoadedAdapter{"a", "a", number, 0});
  };
  const auto zero = adapter(0), one = adapter(1);
  const std::vector<std::vector<AppliedAdapter>> used = {
      {{one, 1}},    {}, {{zero, 1}},           {{one, 1}},
      {{one, 0.5f}}, {}, {{zero, 1}, {one, 1}}, {{zero, 1}}};
  for (size_t i = 0; i < used.size(); ++i) {
    bench.add(static_cast<RequestId>(i), 10, 40).adapters = used[i];
  }
  while (bench.num_decode_rows < 8) bench.step();
  CHECK(bench.step() == Ids{1, 5, 2, 7, 6, 4, 0, 3});
}

TEST_CASE("a step of decode rows is planned ahead, with the rows that continue") {
  Bench bench(64);
  for (const RequestId id : {1, 2, 3}) bench.add(id, 10 * static_cast<int32_t>(id), 40);
  while (bench.num_decode_rows < 3) {
    bench.step();
    CHECK(bench.scheduler.reserve_ahead() == (bench.num_decode_rows == 3));
  }
  const StepPlan& plan = bench.scheduler.plan();
  REQUIRE(ids_of(plan) == Ids{1, 2, 3});
  REQUIRE(bench.scheduler.reserve_ahead());
  draw_all(bench, plan);
  // A request that arrives now waits a step, and the following step is not planned ahead.
  bench.add(4, 4, 4);
  CHECK(ids_of(bench.scheduler.plan_ahead()) == Ids{1, 2, 3});
  for (const PlannedRows& rows : plan.rows) {
    CHECK(rows.count == 1);
    CHECK(rows.first + 1 == static_cast<int32_t>(rows.seq->tokens.size()));
  }
  CHECK_FALSE(bench.scheduler.reserve_ahead());
  draw_all(bench, plan);
  CHECK(ids_of(bench.scheduler.plan()) == Ids{1, 2, 3, 4});
  CHECK_FALSE(bench.scheduler.reserve_ahead());
  draw_all(bench, plan);

  // Requests that end meanwhile have no rows in the planned step.
  bench.scheduler.remove(*bench.scheduler.find(4));
  REQUIRE(ids_of(bench.scheduler.plan()) == Ids{1, 2, 3});
  REQUIRE(bench.scheduler.reserve_ahead());
  draw_all(bench, plan);
  bench.scheduler.remove(*bench.scheduler.find(2));
  CHECK(ids_of(bench.scheduler.plan_ahead()) == Ids{1, 3});
  REQUIRE(bench.scheduler.reserve_ahead());
  draw_all(bench, plan);
  for (const RequestId id : {1, 3}) bench.scheduler.remove(*bench.scheduler.find(id));
  CHECK(bench.scheduler.plan_ahead().empty());
  bench.scheduler.check_integrity();
}

TEST_CASE("no step is planned ahead after a sequence's last token") {
  Bench bench(64);
  bench.add(1, 4, 6);
  bench.step();
  int launched_ahead = 0;
  const StepPlan& plan = bench.scheduler.plan();
  while (bench.scheduler.reserve_ahead()) {
    draw_all(bench, plan);
    REQUIRE(bench.scheduler.plan_ahead().rows.size() == 1);
    ++launched_ahead;
  }
  CHECK(plan.rows.at(0).seq->tokens.size() == 4 + 5);  // the sixth is this step's
  CHECK(launched_ahead == 4);
}

TEST_CASE("while a request waits, only a few steps in a row are planned ahead") {
  SchedulerConfig config;
  config.max_seqs = 1;
  Bench bench(64, config);
  bench.add(1, 4, 60);
  bench.step();
  bench.add(2, 4, 4);
  const StepPlan& plan = bench.scheduler.plan();
  int launched_ahead = 0;
  while (bench.scheduler.reserve_ahead()) {
    draw_all(bench, plan);
    REQUIRE(bench.scheduler.plan_ahead().rows.size() == 1);
    ++launched_ahead;
    REQUIRE(launched_ahead < 40);
  }
  CHECK(launched_ahead > 2);
  bench.scheduler.check_integrity();
}

TEST_CASE("without a block for the next step, it is not planned ahead") {
  Bench bench(7);
  for (const RequestId id : {1, 2, 3}) {
    bench.add(id, 2, 60, Priority::kNormal, "a", 100 * static_cast<int32_t>(id));
  }
  for (int i = 0; i < 20 && bench.num_decode_rows < 3; ++i) bench.step();
  const StepPlan& plan = bench.scheduler.plan();
  REQUIRE(plan.num_decode_rows == 3);
  while (bench.scheduler.reserve_ahead()) {
    draw_all(bench, plan);
    REQUIRE(bench.scheduler.plan_ahead().rows.size() == 3);
  }
  // Each needs its third block within a few steps of the others, and there is one.
  CHECK(bench.kv.pool(0).num_available() == 0);
  for (const PlannedRows& rows : plan.rows) CHECK(rows.first < 34);
  bench.scheduler.check_integrity();
}

TEST_CASE("classes first, then arrival") {
  SchedulerConfig config;
  config.max_seqs = 1;
  Bench bench(64, config);
  bench.add(1, 4, 1, Priority::kBatch);
  bench.add(2, 4, 1, Priority::kNormal);
  bench.add(3, 4, 1, Priority::kInteractive);
  bench.add(4, 4, 1, Priority::kNormal);
  Ids order;
  while (!bench.scheduler.live().empty()) {
    for (const RequestId id : bench.step()) order.push_back(id);
  }
  CHECK(order == Ids{3, 2, 4, 1});
}

TEST_CASE("the longest cached prefix goes first among an owner's oldest, but not for ever") {
  SchedulerConfig config;
  config.max_seqs = 1;
  Bench bench(256, config);
  bench.add(1, 64, 1, Priority::kNormal, "a", 500);  // leaves its prompt cached
  bench.step(1);
  while (!bench.scheduler.live().empty()) bench.step();
  bench.add(100, 64, 1);  // nothing of it is cached
  RequestId next = 101;
  int before = 0;
  while (true) {
    while (bench.scheduler.live().size() < 4) bench.add(next++, 64, 1, Priority::kNormal, "a", 500);
    const Ids ids = bench.step();
    if (std::ranges::count(ids, RequestId{100}) > 0) break;
    ++before;
    REQUIRE(before < 200);
  }
  CHECK(before >= 8);
}

TEST_CASE(
    "while weights are packed late a step takes a fixed number of prompt tokens, and records no "
    "cost") {
  SchedulerConfig config;
  config.max_step_tokens = 512;
  Bench bench(64, config);
  bench.scheduler.set_weights_late(true);
  bench.add(1, 200, 4);
  bench.step(1'000'000);
  CHECK(bench.num_tokens == 128);
  bench.step(1'000'000);
  CHECK(bench.num_tokens == 72);
  bench.add(2, 300, 1, Priority::kNormal, "a", 500);
  bench.step(1'000'000);
  CHECK(bench.num_decode_rows == 1);
  CHECK(bench.num_tokens == 1 + 128);  // also during decoding
  CHECK_FALSE(bench.scheduler.cost().measured_any());
  CHECK_FALSE(bench.scheduler.cost().measured_prefill());

  bench.scheduler.set_weights_late(false);
  bench.step(1'000);
  CHECK(bench.num_tokens == 1);  // decode costs are wanted first
  CHECK(bench.scheduler.cost().measured_any());
}

TEST_CASE("a decode row that needs a block preempts the youngest of the lowest class") {
  SchedulerConfig config;
  config.max_step_tokens = 512;
  Bench bench(9, config);
  bench.add(1, 15, 40, Priority::kNormal, "a", 0);
  bench.add(2, 15, 40, Priority::kBatch, "a", 100);
  bench.add(3, 15, 40, Priority::kNormal, "a", 200);
  // Three of one block each, soon two, then four and more: 9 blocks are too few for all.
  Ids preempted;
  while (!bench.scheduler.live().empty()) {
    const uint64_t before = bench.scheduler.preemptions_total();
    bench.step();
    if (bench.scheduler.preemptions_total() == before) continue;
    for (const auto& live : bench.scheduler.live()) {
      if (live->preemptions > 0) preempted.push_back(live->request.id);
    }
  }
  REQUIRE_FALSE(preempted.empty());
  CHECK(preempted.front() == 2);
}

TEST_CASE("a preempted sequence returns to its cached blocks") {
  SchedulerConfig config;
  config.max_seqs = 1;
  Bench bench(64, config);
  LiveRequest& batch = bench.add(1, 100, 30, Priority::kBatch);
  while (batch.samples[0]->tokens.size() < 110) bench.step();
  bench.add(2, 10, 1, Priority::kInteractive, "a", 500);
  CHECK(bench.step() == Ids{2});
  CHECK(batch.preemptions == 1);
  CHECK(bench.scheduler.num_preempted() <= 1);
  const Ids back = bench.step();
  CHECK(back == Ids{1});
  CHECK(bench.num_tokens <= 16);  // of 110 tokens, 6 whole blocks were found
}

TEST_CASE("a batch sequence does not preempt its equals or betters") {
  SchedulerConfig config;
  config.max_seqs = 1;
  Bench bench(64, config);
  LiveRequest& running = bench.add(1, 10, 50, Priority::kBatch, "a");
  bench.step();
  bench.step();
  bench.add(2, 10, 5, Priority::kBatch, "a", 100);
  bench.add(3, 10, 5, Priority::kBatch, "b", 200);  // b has no slot, but a has only one
  for (int i = 0; i < 20; ++i) CHECK(bench.step() == Ids{1});
  CHECK(running.preemptions == 0);
}

TEST_CASE("an owner without slots gets its share of them") {
  SchedulerConfig config;
  config.max_seqs = 6;
  Bench bench(256, config);
  for (RequestId id = 1; id <= 10; ++id) {
    bench.add(id, 10, 400, Priority::kNormal, "a", static_cast<int32_t>(id) * 20);
  }
  for (int i = 0; i < 30; ++i) bench.step();
  CHECK(bench.num_decode_rows == 6);
  for (RequestId id = 11; id <= 20; ++id) {
    bench.add(id, 10, 400, Priority::kNormal, "b", static_cast<int32_t>(id) * 20);
  }
  Ids rows;
  for (int i = 0; i < 30; ++i) rows = bench.step();
  CHECK(std::ranges::count_if(rows, [](RequestId id) { return id > 10; }) == 3);
  CHECK(bench.scheduler.preemptions_total() == 3);  // and then no sequence is preempted
}

TEST_CASE("sequences beyond the number of rows take turns") {
  SchedulerConfig config;
  config.max_step_tokens = 2;
  Bench bench(256, config);
  LiveRequest& live = bench.add(1, 5, 500, Priority::kNormal, "a", 0, 5);
  for (int i = 0; i < 3 + 50; ++i) {
    bench.step();
    CHECK(bench.num_tokens <= 2);
  }
  REQUIRE(live.samples.size() == 5);
  for (const auto& seq : live.samples) CHECK(seq->tokens.size() == 5 + 1 + 2 * 50 / 5);
}

TEST_CASE("waiting requests know their place and what they wait for") {
  SchedulerConfig config;
  config.max_seqs = 2;
  Bench bench(8, config);
  bench.add(1, 90, 30, Priority::kNormal, "a", 0);
  for (int i = 0; i < 4; ++i) bench.step();  // a plain decode step among them
  bench.add(2, 60, 10, Priority::kBatch, "a", 200);
  bench.add(3, 60, 10, Priority::kNormal, "a", 300);
  bench.step();
  const std::vector<WaitingInfo> waiting = bench.scheduler.waiting();
  REQUIRE(waiting.size() == 2);
  CHECK(waiting[0].request->request.id == 3);
  CHECK(waiting[0].position == 1);
  CHECK(std::string(waiting[0].reason) == "blocks");
  CHECK(waiting[1].request->request.id == 2);
  CHECK(std::string(waiting[1].reason) == "fairness");
}

TEST_CASE("requests are found, expire and are forgotten") {
  Bench bench(64);
  LiveRequest& live = bench.add(7, 10, 5);
  live.request.deadline_us = 100;
  bench.add(8, 10, 5);
  CHECK(bench.scheduler.find(7) == &live);
  CHECK(bench.scheduler.expired(99).empty());
  CHECK(bench.scheduler.expired(100) == std::vector<LiveRequest*>{&live});
  bench.step();
  bench.scheduler.remove(live);
  CHECK(bench.scheduler.find(7) == nullptr);
  bench.scheduler.check_integrity();
  Request again;
  again.id = 8;
  again.prompt = {1};
  again.max_tokens = 1;
  CHECK(bench.scheduler.add(again, "scope").error().field == "id");
}

}  // namespace
}  // namespace hearth::engine
