// Messages become data that can be drawn: bounded, escaped, in order.

#include "monitor/snapshot/snapshot.h"

#include <doctest/doctest.h>

#include <limits>

#include "ipc/wire/codec.h"

namespace hearth::monitor {
namespace {

ipc::StreamMessage watch(int64_t time_us, const ipc::WatchUpdate& update,
                         const std::string& model = "tales") {
  return {time_us, "watch", model, ipc::encode_watch(update)};
}
ipc::StreamMessage requests(int64_t time_us, std::vector<ipc::WatchedRequest> rows) {
  ipc::WatchUpdate update;
  update.requests = std::move(rows);
  return {time_us, "requests", "", ipc::encode_watch(update)};
}
ipc::StreamMessage stats(int64_t time_us, const std::string& instance, int32_t restarts = 0) {
  ipc::StatsReply reply;
  reply.instance = instance;
  ipc::WorkerStats worker;
  worker.model = "tales";
  worker.state = "ready";
  worker.restarts = restarts;
  worker.snapshot.decode_tokens_per_s = 120;
  reply.workers.push_back(worker);
  return {time_us, "stats", "", ipc::encode_event(reply)};
}
ipc::WatchedRequest row(uint64_t number, const std::string& state) {
  ipc::WatchedRequest out;
  out.number = number;
  out.id = "r" + std::to_string(number);
  out.state = state;
  out.age_ms = 100;
  return out;
}
ipc::WatchedStep step(int64_t end_us, int32_t decode_rows) {
  ipc::WatchedStep out;
  out.end_us = end_us;
  out.duration_us = 1000;
  out.decode_rows = decode_rows;
  return out;
}

TEST_CASE("messages without a map do not change it; prefixes, memory and power are kept") {
  Snapshot snapshot;
  ipc::WatchUpdate update;
  update.sequence = 1;
  ipc::BlockRun run;
  run.first = 2;
  run.count = 3;
  run.state = ipc::WatchedBlock::kMoving;
  run.on_disk = true;
  update.pools.push_back({.group = 0, .num_blocks = 8, .full = true, .runs = {run}});
  snapshot.apply(watch(1'000'000, update));
  ipc::WatchUpdate tree;
  tree.sequence = 2;
  tree.has_prefixes = true;
  tree.prefixes.resize(2);
  tree.resident_bytes = 5000;
  tree.power_mw = -7;
  snapshot.apply(watch(1'100'000, tree));
  const ModelView& view = snapshot.model_views().at("tales");
  REQUIRE(view.pools.size() == 1);
  CHECK(view.pools[0].known);
  CHECK(view.pools[0].counts[5] == 3);
  CHECK(view.pools[0].cells[3].on_disk);
  CHECK(view.prefixes.size() == 2);
  CHECK(view.prefixes_us == 1'100'000);
  CHECK(view.resident_bytes == 5000);
  CHECK(view.power_mw == 0);
  ipc::WatchUpdate next;
  next.sequence = 3;
  snapshot.apply(watch(1'200'000, next));
  CHECK(view.prefixes.size() == 2);  // not sent again
}

TEST_CASE("a GPU that reports values: its texts are printable, its power is a line") {
  Snapshot snapshot;
  ipc::StatsReply reply;
  reply.instance = "one";
  ipc::WorkerStats& worker = reply.workers.emplace_back();
  worker.model = "tales";
  ipc::GpuSnapshot& gpu = worker.snapshot.gpu.emplace();
  gpu.name = "GPU\n" + std::string(400, 'x');
  gpu.power_mw = 412'500;
  snapshot.apply({1'000'000, "stats", "", ipc::encode_event(reply)});
  const ModelView& view = snapshot.model_views().at("tales");
  REQUIRE(view.stats.snapshot.gpu.has_value());
  CHECK(view.stats.snapshot.gpu->name.starts_with("GPU␊xxx"));
  CHECK(view.stats.snapshot.gpu->name.size() < 100);
  CHECK(view.gpu_power.last() == 412.5);
  gpu.power_mw = -1;  // it reports it no more
  snapshot.apply({2'000'000, "stats", "", ipc::encode_event(reply)});
  CHECK(view.gpu_power.last() == 412.5);
  CHECK(view.power.empty());
}

TEST_CASE("a series keeps ten minutes of means, at any rate of values") {
  Series series;
  for (int64_t ms = 0; ms < 1'200'000; ms += 50) series.add(ms * 1000, ms < 600'000 ? 1 : 3);
  CHECK(series.size() == Series::kBuckets);
  CHECK(series[0].value == 3);
  CHECK(series.last() == 3);
  CHECK(series[series.size() - 1].time_us - series[0].time_us ==
        (static_cast<int64_t>(Series::kBuckets) - 1) * Series::kBucketUs);
  series.add(0, 100);  // time runs backwards: it counts into the last bucket
  CHECK(series.last() > 3);
  series.add(1, std::numeric_limits<double>::quiet_NaN());
  CHECK(series.last() > 3);
}

TEST_CASE("percentiles") {
  std::vector<double> none;
  CHECK(percentile(none, 0.5) == 0);
  std::vector<double> values;
  for (int i = 100; i >= 0; --i) values.push_back(i);
  CHECK(percentile(values, 0.5) == 50);
  CHECK(percentile(values, 0.99) == 99);
}

TEST_CASE("blocks: a whole map, changes to it, a lost message") {
  Snapshot snapshot;
  ipc::WatchUpdate update;
  update.sequence = 1;
  update.block_size = 16;
  update.pools.push_back({.group = 0,
                          .num_blocks = 10,
                          .full = true,
                          .runs = {{.first = 2,
                                    .count = 3,
                                    .state = ipc::WatchedBlock::kUsed,
                                    .refs = 1,
                                    .request = 9,
                                    .position = 4}}});
  snapshot.apply(watch(1'000'000, update));
  const Pool* pool = &snapshot.model_views().at("tales").pools[0];
  REQUIRE(pool->known);
  CHECK(pool->counts == std::array<int64_t, ipc::kNumWatchedBlocks>{7, 3, 0, 0, 0, 0});
  CHECK(pool->cells[4].position == 6);
  CHECK(pool->cells[4].request == 9);
  update.sequence = 2;
  update.pools[0].full = false;
  update.pools[0].runs = {{.first = 4,
                           .count = 2,
                           .state = ipc::WatchedBlock::kCached,
                           .refs = 0,
                           .request = 0,
                           .position = 0}};
  snapshot.apply(watch(1'100'000, update));
  CHECK(pool->counts == std::array<int64_t, ipc::kNumWatchedBlocks>{6, 2, 0, 2, 0, 0});
  CHECK(pool->cells[5] == BlockCell{0, 0, ipc::WatchedBlock::kCached, 0});
  update.sequence = 4;  // 3 was lost: the map may be wrong
  snapshot.apply(watch(1'200'000, update));
  CHECK_FALSE(pool->known);
  CHECK(snapshot.model_views().at("tales").messages_lost == 1);
  update.sequence = 5;
  update.pools[0].full = true;
  snapshot.apply(watch(1'300'000, update));
  CHECK(pool->known);
  CHECK(pool->counts == std::array<int64_t, ipc::kNumWatchedBlocks>{8, 0, 0, 2, 0, 0});
}

TEST_CASE("a pool whose size changes is a new one; an absurd one is not shown") {
  Snapshot snapshot;
  ipc::WatchUpdate update;
  update.pools.push_back({.group = 0, .num_blocks = 1 << 24, .full = true, .runs = {}});
  snapshot.apply(watch(1, update));
  CHECK(snapshot.model_views().at("tales").pools[0].cells.empty());
  update.pools[0].num_blocks = 5;
  snapshot.apply(watch(2, update));
  CHECK(snapshot.model_views().at("tales").pools[0].cells.size() == 5);
}

TEST_CASE("steps are kept in order and within bounds") {
  Snapshot snapshot;
  int64_t now_us = 0;
  for (uint64_t message = 1; message <= 30; ++message) {
    ipc::WatchUpdate update;
    update.sequence = message;
    for (int i = 0; i < 2000; ++i) update.steps.push_back(step(now_us += 500, 4));
    snapshot.apply(watch(now_us, update));
  }
  const ModelView& view = snapshot.model_views().at("tales");
  CHECK(view.steps.size() == Snapshot::kMaxSteps);
  CHECK(view.columns.size() == 301);  // 30 s of tenths: what left the ring is still there
  CHECK(view.columns[10].decode_rows == 200 * 4);
  ipc::WatchUpdate late;
  late.sequence = 31;
  late.steps.push_back(step(5, 4));
  snapshot.apply(watch(now_us, late));
  CHECK(view.steps.back().end_us == now_us);
}

TEST_CASE("gaps between tokens: percentiles of the last half minute, to 3 %") {
  Snapshot snapshot;
  ipc::WatchUpdate update;
  update.gaps = {
      {ipc::gap_bucket(20), 5}, {ipc::gap_bucket(2000), 90}, {ipc::gap_bucket(90'000), 5}};
  snapshot.apply(watch(1'000'000, update));
  const ModelView& view = snapshot.model_views().at("tales");
  CHECK(view.gaps.count() == 100);
  CHECK(view.gaps.ms(0) == 0.02);
  CHECK(view.gaps.ms(0.5) == doctest::Approx(2).epsilon(0.03));
  CHECK(view.gaps.ms(0.99) == doctest::Approx(90).epsilon(0.03));
  CHECK(view.gap_ms_p50.last() == view.gaps.ms(0.5));
  update.sequence = 2;
  update.gaps = {{ipc::gap_bucket(7000), 1}};
  snapshot.apply(watch(1'000'000 + kGapWindowUs, update));
  CHECK(view.gaps.count() == 101);
  update.sequence = 3;
  update.gaps.clear();
  snapshot.apply(watch(1'000'001 + kGapWindowUs, update));
  CHECK(view.gaps.count() == 1);
  CHECK(view.gaps.ms(0.5) == doctest::Approx(7).epsilon(0.03));
  // Counts that do not overflow a sum.
  update.sequence = 4;
  update.gaps.assign(1000, {ipc::WatchLimits::kGapBuckets - 1, UINT32_MAX});
  snapshot.apply(watch(1'000'002 + kGapWindowUs, update));
  CHECK(view.gaps.count() == 1 + 1000 * uint64_t{UINT32_MAX});
}

TEST_CASE("a swap is in the log, and marked on the lines") {
  Snapshot snapshot;
  ipc::ModelsReply reply;
  reply.models.resize(2);
  reply.models[0].name = "old";
  reply.models[0].state = "resident";
  reply.models[0].roles = {"default"};
  reply.models[1].name = "new";
  reply.models[1].state = "loading";
  const auto report = [&](int64_t now_us) {
    snapshot.apply({now_us, "models", "", ipc::encode_event(reply)});
  };
  report(1'000'000);
  CHECK(snapshot.marks().empty());
  reply.models[1].state = "resident";
  report(2'000'000);
  std::swap(reply.models[0].roles, reply.models[1].roles);
  report(3'000'000);
  REQUIRE(snapshot.marks().size() == 2);
  CHECK(snapshot.marks()[0].text == "new loaded");
  CHECK(snapshot.marks()[1].text == "default is new now");
  CHECK(snapshot.marks()[1].time_us == 3'000'000);
  CHECK(snapshot.log().back().text == "default: old -> new");
  for (int i = 0; i < 1000; ++i) {
    std::swap(reply.models[0].roles, reply.models[1].roles);
    report(4'000'000 + i);
  }
  CHECK(snapshot.marks().size() == Snapshot::kMaxMarks);
}

TEST_CASE("a request's life: segments, first token, end") {
  Snapshot snapshot;
  snapshot.apply(requests(1'000'000, {row(5, "queued")}));
  ipc::WatchedRequest running = row(5, "decode");
  running.age_ms = 1100;
  running.ttft_us = 100'000;
  running.output_tokens = 101;
  snapshot.apply(requests(2'000'000, {running}));
  const RequestView& request = snapshot.requests().at(5);
  REQUIRE(request.life.size() == 2);
  CHECK(request.life[0].begin_us == 900'000);
  CHECK(request.life[0].end_us == 2'000'000);
  CHECK(request.tokens_per_s == doctest::Approx(100));
  CHECK(snapshot.ttft_ms_p50() == 100);
  snapshot.apply(requests(3'000'000, {}));
  CHECK(request.ended);
  CHECK(request.row.state == "ended");
  CHECK(snapshot.num_ttfts() == 1);
  for (uint64_t number = 10; number < 10 + 2 * Snapshot::kMaxEnded; ++number) {
    snapshot.apply(requests(3'000'000 + static_cast<int64_t>(number), {row(number, "decode")}));
  }
  CHECK(snapshot.requests().size() <= Snapshot::kMaxEnded + 2);
}

TEST_CASE("the daemon is lost, returns, or is another one; its worker died") {
  Snapshot snapshot;
  CHECK_FALSE(snapshot.connected());
  snapshot.apply(stats(1'000'000, "a"));
  snapshot.apply(requests(1'000'000, {row(5, "decode")}));
  CHECK(snapshot.connected());
  snapshot.set_now(1'000'000 + kLostUs + 1);
  CHECK_FALSE(snapshot.connected());
  CHECK(snapshot.requests().at(5).ended);
  const uint64_t revision = snapshot.revision();
  snapshot.apply(stats(4'000'000, "a", 1));
  CHECK(snapshot.connected());
  CHECK(snapshot.revision() > revision);
  CHECK(snapshot.log().back().text.find("died") != std::string::npos);
  snapshot.apply(stats(5'000'000, "b"));
  CHECK(snapshot.requests().empty());
}

TEST_CASE("without news no new picture is drawn") {
  Snapshot snapshot;
  snapshot.apply(stats(1'000'000, "a"));
  const uint64_t revision = snapshot.revision();
  snapshot.apply(stats(1'100'000, "a"));
  CHECK(snapshot.revision() == revision);
}

TEST_CASE("hostile events: control characters, long names, counts that overflow, garbage") {
  Snapshot snapshot;
  ipc::WatchedRequest evil = row(1, "decode\x1b[31m");
  evil.id = "a\x1b]0;owned\x07\nb\xff";
  evil.owner = std::string(1 << 20, 'x');
  evil.output_tokens = INT32_MIN;
  evil.age_ms = INT64_MAX;
  evil.ttft_us = INT64_MAX;
  evil.queue_us = INT64_MIN;
  evil.estimate_ms = INT64_MIN;
  snapshot.apply(requests(1'000'000, {evil}));
  const RequestView& request = snapshot.requests().at(1);
  for (const std::string* text : {&request.row.id, &request.row.state, &request.row.owner}) {
    CHECK(text->find('\x1b') == std::string::npos);
    CHECK(text->find('\n') == std::string::npos);
    CHECK(text->size() < 4 * kNameChars);
  }
  CHECK(request.raw_id.empty());  // what cannot be shown cannot be cancelled by name
  CHECK(request.row.output_tokens == 0);
  CHECK(request.row.age_ms == 1000);
  CHECK(request.received_us >= 0);

  ipc::WatchUpdate update;
  update.sequence = 1;
  ipc::WatchedStep wild;
  wild.end_us = INT64_MAX;
  wild.duration_us = INT64_MIN;
  wild.decode_rows = INT32_MIN;
  wild.prefills.assign(256, {7, INT32_MAX});
  update.steps = {wild, step(INT64_MIN, -1)};
  snapshot.apply(watch(2'000'000, update, std::string(1 << 16, 'm')));
  const ModelView& view = snapshot.model_views().begin()->second;
  CHECK(view.name.size() < 4 * kNameChars);
  CHECK(view.steps.back().decode_rows == 0);
  CHECK(view.steps.back().end_us <= 2'000'000);
  CHECK(view.steps.back().prefills.size() == Snapshot::kMaxChunks);
  CHECK(step_in_words(view.steps.back()).find("prefill") == 0);

  for (const char* kind : {"stats", "models", "watch", "requests", "", "\x1b"}) {
    snapshot.apply({2'100'000, kind, "m", "not a message"});
  }
  CHECK(snapshot.messages_refused() == 6);
  for (int i = 0; i < 5000; ++i) {
    snapshot.apply(watch(2'200'000, {}, "model" + std::to_string(i)));
  }
  CHECK(snapshot.model_views().size() <= Snapshot::kMaxModels);
  CHECK(snapshot.log().size() <= Snapshot::kMaxLog);
}

TEST_CASE("a step in words") {
  ipc::WatchedStep met = step(1, 2);
  met.draft_rows = 6;
  met.accepted = 4;
  met.prefills = {{1, 100}, {2, 28}};
  met.preempted = 1;
  met.waiting = 3;
  CHECK(step_in_words(met) ==
        "decode 2 sequences, 6 tokens drafted, 4 accepted; prefill 128 tokens of 2 prompts; "
        "1 preempted to make room; 3 still wait");
  CHECK(step_in_words({}) == "nothing to compute");
}

}  // namespace
}  // namespace hearth::monitor
