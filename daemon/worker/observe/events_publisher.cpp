#include "daemon/worker/observe/events_publisher.h"

#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"

namespace hearth::worker {
namespace {

using engine::BlockCell;
using engine::BlockState;

ipc::WatchedBlock to_wire(BlockState state) {
  switch (state) {
    case BlockState::kFree: return ipc::WatchedBlock::kFree;
    case BlockState::kUsed: return ipc::WatchedBlock::kUsed;
    case BlockState::kShared: return ipc::WatchedBlock::kShared;
    case BlockState::kCached: return ipc::WatchedBlock::kCached;
    case BlockState::kPinned: return ipc::WatchedBlock::kPinned;
    case BlockState::kMoving: return ipc::WatchedBlock::kMoving;
  }
  return ipc::WatchedBlock::kFree;
}

/// Whether `cell` extends `run`.
bool continues(const ipc::BlockRun& run, const BlockCell& cell, size_t block) {
  if (run.first + run.count != block || run.state != to_wire(cell.state)) return false;
  if (run.refs != cell.refs || run.request != cell.request || run.on_disk != cell.on_disk) {
    return false;
  }
  return cell.request == 0 || cell.position == run.position + narrow<int32_t>(run.count);
}

ipc::WatchedStep to_wire(const engine::StepRecord& from) {
  ipc::WatchedStep out{.step = from.step,
                       .end_us = from.end_us,
                       .duration_us = from.duration_us,
                       .decode_rows = from.decode_rows,
                       .draft_rows = from.draft_rows,
                       .accepted = from.accepted,
                       .prefills = {},
                       .prefills_unlisted = from.prefills_unlisted,
                       .running = from.running,
                       .waiting = from.waiting,
                       .preempted = from.preempted};
  for (const engine::StepChunk& chunk : from.prefills) {
    out.prefills.push_back({chunk.request, chunk.tokens});
  }
  return out;
}

ipc::WatchedRequest to_wire(const engine::RequestWatch& from) {
  ipc::WatchedRequest out;
  static_cast<ipc::WatchedProgress&>(out) = {.prompt_tokens = from.prompt_tokens,
                                             .prompt_done = from.prompt_done,
                                             .cached_tokens = from.cached_tokens,
                                             .output_tokens = from.output_tokens,
                                             .drafted_tokens = from.drafted_tokens,
                                             .accepted_tokens = from.accepted_tokens,
                                             .preemptions = from.preemptions,
                                             .queue_us = from.queue_us,
                                             .ttft_us = from.ttft_us,
                                             .canvas = from.canvas,
                                             .canvas_first = from.canvas_first,
                                             .pass = from.pass,
                                             .passes = from.passes};
  out.number = from.id;
  out.waiting_for = from.waiting_for;
  out.queue_position = from.queue_position;
  return out;
}

ipc::WatchedPrefix to_wire(const engine::PrefixRun& from) {
  ipc::WatchedPrefix out;
  out.name_high = from.name.high;
  out.name_low = from.name.low;
  out.parent_high = from.parent.high;
  out.parent_low = from.parent.low;
  out.num_blocks = from.num_blocks;
  out.end_block = from.end_block;
  out.in_use = from.in_use;
  out.pinned = from.pinned;
  return out;
}

}  // namespace

std::vector<ipc::BlockRun> block_runs(const std::vector<BlockCell>& before,
                                      const std::vector<BlockCell>& now, bool whole) {
  HEARTH_CHECK(whole || before.size() == now.size());
  std::vector<ipc::BlockRun> runs;
  for (size_t block = 0; block < now.size(); ++block) {
    const BlockCell& cell = now[block];
    if (whole ? cell.state == BlockState::kFree : cell == before[block]) continue;
    if (!runs.empty() && continues(runs.back(), cell, block)) {
      ++runs.back().count;
    } else {
      runs.push_back({.first = narrow<uint32_t>(block),
                      .count = 1,
                      .state = to_wire(cell.state),
                      .refs = cell.refs,
                      .request = cell.request,
                      .position = cell.position,
                      .on_disk = cell.on_disk});
    }
  }
  return runs;
}

void EventsPublisher::start() {
  on_ = true;
  since_whole_ = 0;
}

void EventsPublisher::stop() {
  on_ = false;
  before_ = nullptr;
  gaps_.fill(0);
}

void EventsPublisher::add_gap(int64_t us) {
  if (on_) ++gaps_[ipc::gap_bucket(us)];
}

std::string EventsPublisher::encode(std::shared_ptr<const engine::EngineWatch> watch) {
  HEARTH_CHECK(on_);
  ipc::WatchUpdate out;
  out.sequence = ++sequence_;
  out.now_us = watch->now_us;
  out.steps_dropped = watch->steps_dropped;
  out.block_size = watch->block_size;
  meter_.read(watch->now_us);
  out.resident_bytes = meter_.resident_bytes();
  out.power_mw = meter_.power_mw();
  for (uint32_t bucket = 0; bucket < gaps_.size(); ++bucket) {
    if (gaps_[bucket] > 0) out.gaps.push_back({bucket, std::exchange(gaps_[bucket], 0)});
  }
  for (const engine::StepRecord& step : watch->steps) out.steps.push_back(to_wire(step));
  for (const engine::RequestWatch& row : watch->requests) out.requests.push_back(to_wire(row));
  out.has_prefixes = watch->has_prefixes;
  for (const engine::PrefixRun& run : watch->prefixes) out.prefixes.push_back(to_wire(run));
  if (watch->pools.empty()) return ipc::encode_watch(out);
  const bool whole = since_whole_++ % kWholeEvery == 0 || before_ == nullptr;
  for (size_t group = 0; group < watch->pools.size(); ++group) {
    const std::vector<BlockCell>& now = watch->pools[group];
    ipc::PoolUpdate pool{
        .group = narrow<int32_t>(group), .num_blocks = size32(now), .full = whole, .runs = {}};
    pool.runs = whole ? block_runs({}, now, true) : block_runs(before_->pools[group], now, false);
    out.pools.push_back(std::move(pool));
  }
  before_ = std::move(watch);
  return ipc::encode_watch(out);
}

}  // namespace hearth::worker
