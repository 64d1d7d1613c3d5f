#include "engine/steps/step_record.h"

#include <algorithm>
#include <utility>

#include "engine/kv/kv_cache.h"
#include "engine/scheduling/scheduler.h"
#include "kernels/base/check.h"
#include "kernels/base/numbers.h"

namespace hearth::engine {
namespace {

std::vector<BlockCell> cells_of(const Scheduler& scheduler, const KvCache& kv, int32_t group,
                                const std::vector<bool>& pinned) {
  const BlockPool& pool = kv.pool(group);
  const PrefixIndex& index = kv.index();
  std::vector<BlockCell> cells(pool.num_blocks());
  for (int32_t block = 0; block < pool.num_blocks(); ++block) {
    BlockCell& cell = cells[block];
    const int32_t refs = pool.ref_count(block);
    cell.refs = static_cast<uint8_t>(std::min(refs, 255));
    const NodeId node = pool.indexed(block) ? index.node_of(group, block) : kNoNode;
    const bool kept = node != kNoNode && pinned[node];
    cell.state = refs > 1          ? BlockState::kShared
                 : refs == 1       ? BlockState::kUsed
                 : kept            ? BlockState::kPinned
                 : node != kNoNode ? BlockState::kCached
                                   : BlockState::kFree;
    cell.on_disk = node != kNoNode && index.stored(node);
  }
  for (const auto& live : scheduler.live()) {
    for (const auto& seq : live->samples) {
      const auto& tables = seq->blocks.tables;
      if (std::cmp_greater_equal(group, tables.size())) continue;
      const std::vector<int32_t>& table = tables[group];
      for (size_t i = 0; i < table.size(); ++i) {
        if (table[i] < 0) continue;
        BlockCell& cell = cells[table[i]];
        if (cell.request != 0) continue;
        cell.request = live->request.id;
        cell.position = narrow<int32_t>(i);
      }
    }
  }
  return cells;
}

void add_canvas(const Canvas& canvas, RequestWatch& row) {
  const std::vector<double>& confidence = canvas.confidence();
  const int32_t length = size32(confidence);
  const int32_t shown = std::min(length, RequestWatch::kShownCanvas);
  row.canvas_first = std::min(canvas.num_whole(), length - shown);
  row.pass = canvas.pass();
  row.passes = canvas.num_passes();
  for (int32_t i = row.canvas_first; i < row.canvas_first + shown; ++i) {
    char shown_as = confidence[i] == 0 ? '.' : '0';
    while (shown_as >= '0' && shown_as < '9' && 10 * confidence[i] >= shown_as - '0' + 1) {
      ++shown_as;
    }
    row.canvas += shown_as;
  }
}

RequestWatch row_of(const LiveRequest& live, int64_t now_us) {
  RequestWatch row;
  row.id = live.request.id;
  row.prompt_tokens = live.prompt_size();
  row.prompt_done = std::min(live.samples.front()->blocks.num_tokens, live.prompt_size());
  const RequestStats& stats = live.stats;
  row.cached_tokens = live.started ? stats.cached_tokens : 0;
  row.output_tokens = stats.output_tokens;
  row.drafted_tokens = narrow<int32_t>(stats.speculation.drafted_tokens);
  row.accepted_tokens = narrow<int32_t>(stats.speculation.accepted_tokens);
  row.preemptions = live.preemptions;
  row.queue_us = stats.started_us.value_or(now_us) - live.request.received_us;
  if (stats.first_token_us) row.ttft_us = *stats.first_token_us - live.request.received_us;
  if (live.samples.front()->canvas) add_canvas(*live.samples.front()->canvas, row);
  return row;
}

}  // namespace

std::vector<PrefixRun> prefix_runs(const KvCache& kv, int32_t chunk_blocks, size_t limit) {
  const PrefixIndex& index = kv.index();
  // Blocks from the root up to and with the node; -1: not known yet.
  std::vector<int32_t> depths(index.end_node(), -1);
  std::vector<NodeId> way;
  const auto depth_of = [&](NodeId node) {
    way.clear();
    for (; depths[node] < 0 && !index.is_root(node); node = index.parent(node)) {
      way.push_back(node);
    }
    int32_t depth = std::max(0, depths[node]);
    for (auto at = way.rbegin(); at != way.rend(); ++at) depths[*at] = ++depth;
    return depth;
  };
  const auto ends_run = [&](NodeId node) {
    return index.num_children(node) != 1 ||
           (chunk_blocks > 0 && depth_of(node) % chunk_blocks == 0);
  };
  std::vector<PrefixRun> runs;
  for (NodeId tip = 0; tip < index.end_node() && runs.size() < limit; ++tip) {
    if (!index.alive(tip) || index.is_root(tip) || !ends_run(tip)) continue;
    PrefixRun run;
    run.name = index.hash(tip);
    run.end_block = depth_of(tip);
    NodeId node = tip;
    do {
      for (int32_t group = 0; group < kv.num_groups(); ++group) {
        const int32_t block = index.block(node, group);
        if (block == kNoBlock) continue;
        ++run.num_blocks;
        run.in_use += kv.pool(group).ref_count(block) > 0 ? 1 : 0;
      }
      node = index.parent(node);
    } while (!index.is_root(node) && !ends_run(node));
    run.parent = index.hash(node);
    runs.push_back(run);
  }
  return runs;
}

std::vector<bool> pinned_nodes(const KvCache& kv, std::span<const PinnedChunk> chunks) {
  const PrefixIndex& index = kv.index();
  std::vector<bool> pinned(index.end_node(), false);
  for (const PinnedChunk& chunk : chunks) {
    NodeId node = index.find(chunk.last);
    for (int32_t i = 0; i < chunk.num_blocks && node != kNoNode && !index.is_root(node); ++i) {
      pinned[node] = true;
      node = index.parent(node);
    }
  }
  return pinned;
}

void StepRecorder::watch(bool on) {
  if (on == on_) return;
  on_ = on;
  steps_ = {};
  moved_ = {};
  dropped_ = 0;
  map_due_us_ = prefixes_due_us_ = 0;
  preemptions_before_.reset();
}

void StepRecorder::add(const StepPlan& plan, const Scheduler& scheduler, uint64_t step,
                       int64_t end_us, int64_t duration_us, int32_t accepted) {
  HEARTH_CHECK(on_);
  ++calls_;
  const uint64_t preemptions = scheduler.preemptions_total();
  // Preemptions from before recording began do not count for this step.
  const uint64_t preempted = preemptions - preemptions_before_.value_or(preemptions);
  preemptions_before_ = preemptions;
  if (steps_.size() == kMaxSteps) {
    ++dropped_;
    return;
  }
  StepRecord& record = steps_.emplace_back();
  record.step = step;
  record.end_us = end_us;
  record.duration_us = duration_us;
  record.decode_rows = plan.num_decode_rows;
  record.draft_rows = plan.num_drafted;
  record.accepted = accepted;
  record.running = scheduler.num_running();
  record.waiting = scheduler.num_waiting();
  record.preempted = narrow<int32_t>(preempted);
  // The sequences that decode come first, then the prefills.
  for (size_t i = plan.num_decode_rows; i < plan.rows.size(); ++i) {
    const PlannedRows& rows = plan.rows[i];
    if (record.prefills.size() == kMaxChunks) {
      record.prefills_unlisted += rows.count;
    } else {
      record.prefills.push_back({rows.seq->request->request.id, rows.count});
    }
  }
}

std::shared_ptr<const EngineWatch> StepRecorder::take(const Scheduler& scheduler, const KvCache& kv,
                                                      int32_t chunk_blocks,
                                                      std::span<const PinnedChunk> pinned) {
  HEARTH_CHECK(on_);
  ++calls_;
  auto out = std::make_shared<EngineWatch>();
  const int64_t now_us = clock_.now_us();
  out->now_us = now_us;
  out->steps = std::exchange(steps_, {});
  out->steps_dropped = std::exchange(dropped_, 0);
  out->block_size = kv.block_size();
  const auto next_due = [&](int64_t every_us) {
    const int64_t cost_us = clock_.now_us() - now_us;
    return now_us + std::max(every_us, cost_us * kCostShare);
  };
  if (now_us >= map_due_us_) {
    const std::vector<bool> kept = pinned_nodes(kv, pinned);
    for (int32_t group = 0; group < kv.num_groups(); ++group) {
      out->pools.push_back(cells_of(scheduler, kv, group, kept));
    }
    for (const MovedBlock& moved : std::exchange(moved_, {})) {
      BlockCell& cell = out->pools[moved.group][moved.block];
      const bool plain = cell.state == BlockState::kUsed || cell.state == BlockState::kCached ||
                         cell.state == BlockState::kPinned;
      if (plain) cell.state = BlockState::kMoving;
    }
    map_due_us_ = next_due(kMapEveryUs);
  } else if (now_us >= prefixes_due_us_) {
    out->has_prefixes = true;
    out->prefixes = prefix_runs(kv, chunk_blocks, kMaxPrefixes);
    const std::vector<bool> kept = pinned_nodes(kv, pinned);
    for (PrefixRun& run : out->prefixes) {
      run.pinned = kept[kv.index().find(run.name)];
    }
    prefixes_due_us_ = next_due(kPrefixesEveryUs);
  }
  for (const auto& live : scheduler.live()) {
    if (out->requests.size() == kMaxRequests) break;
    if (!live->ended) out->requests.push_back(row_of(*live, now_us));
  }
  for (const WaitingInfo& info : scheduler.waiting()) {
    const auto found =
        std::ranges::find(out->requests, info.request->request.id, &RequestWatch::id);
    if (found == out->requests.end()) continue;
    found->waiting_for = info.reason;
    found->queue_position = info.position;
  }
  return out;
}

}  // namespace hearth::engine
