// The events and snapshots that an engine publishes about its requests and itself.

#include <algorithm>

#include "engine/kv/memory_plan.h"
#include "engine/loop/engine_impl.h"
#include "kernels/base/numbers.h"

namespace hearth::engine {
namespace {

constexpr int64_t kProgressEveryUs = 100'000;

}  // namespace

void Engine::Impl::report_started(const StepPlan& plan) {
  for (const PlannedRows& rows : plan.rows) {
    if (!rows.starts_request) continue;
    LiveRequest& live = *rows.seq->request;
    RequestStats& stats = live.stats;
    stats.started_us = now_us;
    stats.cached_tokens = std::min(stats.cached_tokens, live.prompt_size());
    const int32_t restored = std::max(0, live.restore.end_token - live.restore.first_token);
    stats.disk_tokens += std::clamp(stats.cached_tokens - live.restore.first_token, 0, restored);
    const PrefillRun cached{0, stats.cached_tokens};
    stats.saved_us = 0;  // an estimate is reported only from measured costs
    if (scheduler.cost().knows(cached)) {
      const auto compute_us = static_cast<int64_t>(scheduler.cost().prefill_us(cached));
      stats.saved_us = std::max<int64_t>(0, compute_us - live.restore.waited_us);
    }
    stats.miss = miss_of(live);
    stats.missed_from = stats.cached_tokens;
    counters.request_started(live);
    events.emplace_back(
        StartedEvent{live.request.id, stats.cached_tokens, now_us - live.request.received_us});
  }
}

MissReason Engine::Impl::miss_of(const LiveRequest& live) const {
  if (!live.request.use_prefix_cache) return MissReason::kOff;
  const int32_t block_size = kv.block_size();
  const int32_t cached = live.stats.cached_tokens / block_size;
  if (cached >= (live.prompt_size() - 1) / block_size) return MissReason::kNone;
  if (live.restore.overlaps) return MissReason::kOverlapped;
  if (live.restore.store_slow) return MissReason::kSlow;
  if (cached == 0) return MissReason::kNew;
  const int32_t others = kv.continuations(live.scope, live.request.prompt, cached);
  return others > 0 ? MissReason::kOther : MissReason::kEnded;
}

void Engine::Impl::report_done(LiveRequest& live) {
  live.ended = true;
  ended.push_back(&live);
  const RequestStats& stats = live.stats;
  const int64_t received_us = live.request.received_us;
  RequestDoneEvent done;
  done.id = live.request.id;
  done.prompt_tokens = live.prompt_size();
  done.cached_tokens = stats.cached_tokens;
  done.cached_disk_tokens = stats.disk_tokens;
  done.miss = stats.miss;
  // Loading the end of the prompt was planned, but none of it was loaded.
  if (stats.miss == MissReason::kOverlapped && stats.disk_tokens == 0)
    done.miss = MissReason::kEnded;
  done.missed_from = stats.missed_from;
  done.restore_us = live.restore.waited_us;
  done.saved_us = stats.saved_us;
  done.output_tokens = stats.output_tokens;
  done.preemptions = live.preemptions;
  done.speculation = stats.speculation;
  done.queue_us = stats.started_us.value_or(now_us) - received_us;
  if (stats.first_token_us.has_value()) {
    done.prefill_us = *stats.first_token_us - *stats.started_us;
    done.ttft_us = *stats.first_token_us - received_us;
  }
  if (stats.sample0_tokens > 1) {
    done.tpot_us =
        as_double(stats.sample0_last_us - stats.sample0_first_us) / (stats.sample0_tokens - 1);
  }
  counters.request_done(stats, now_us);
  events.emplace_back(done);
}

// Assumes that requests end one after another, and that as many run at once as now.
int64_t Engine::Impl::wait_us(int32_t position) const {
  const int32_t running = scheduler.num_running();
  return running == 0 ? 0 : static_cast<int64_t>(counters.service_us() * position / running);
}

void Engine::Impl::report_progress() {
  const auto due = [this](LiveRequest& live, bool fills = false) {
    const bool shown = fills || !live.stats.first_token_us.has_value();
    if (!shown || now_us < live.next_progress_us) return false;
    live.next_progress_us = now_us + kProgressEveryUs;
    return true;
  };
  bool any_waits = false;
  for (const auto& live : scheduler.live()) {
    const Sequence& seq = *live->samples.front();
    if (live->request.canvas) {
      const bool runs = std::ranges::any_of(
          live->samples, [](const auto& each) { return each->state == Sequence::State::kRunning; });
      any_waits = any_waits || (!runs && now_us >= live->next_progress_us);
      if (runs && due(*live, true)) report_canvases(*live);
      continue;
    }
    if (seq.state == Sequence::State::kWaiting) {
      any_waits = any_waits || now_us >= live->next_progress_us;
    } else if (due(*live)) {
      events.emplace_back(ProgressEvent{live->request.id,
                                        std::min(seq.blocks.num_tokens, live->prompt_size()),
                                        live->prompt_size(), 0, ""});
    }
  }
  if (!any_waits) return;
  for (const WaitingInfo& info : scheduler.waiting()) {
    if (!due(*info.request)) continue;
    events.emplace_back(ProgressEvent{info.request->request.id, 0, info.request->prompt_size(),
                                      info.position, info.reason, wait_us(info.position)});
  }
}

void Engine::Impl::report_canvases(const LiveRequest& live) {
  const int32_t prompt = live.prompt_size();
  for (const auto& seq : live.samples) {
    if (seq->state != Sequence::State::kRunning) continue;
    const Canvas& canvas = *seq->canvas;
    CanvasView view{.sample = seq->sample,
                    .pass = canvas.pass(),
                    .passes = canvas.num_passes(),
                    .tokens = {seq->tokens.begin() + prompt, seq->tokens.end()},
                    .confidence = {canvas.confidence().begin(), canvas.confidence().end()}};
    std::ranges::replace(view.tokens, canvas.model().mask_token, -1);
    events.emplace_back(ProgressEvent{live.request.id, prompt, prompt, 0, "", 0, std::move(view)});
  }
}

EngineSnapshot Engine::Impl::snapshot() const {
  EngineSnapshot out = counters.snapshot(clock.now_us());
  out.time_us = now_us;
  out.num_running = scheduler.num_running();
  out.num_preempted = scheduler.num_preempted();
  out.num_waiting = scheduler.num_waiting() - out.num_preempted;
  for (int32_t group = 0; group < kv.num_groups(); ++group) {
    out.kv_blocks_total.push_back(kv.pool(group).num_blocks());
    out.kv_blocks_used.push_back(kv.pool(group).num_used());
    out.kv_blocks_cached.push_back(kv.pool(group).num_cached());
    const int64_t held = kv.pool(group).num_used() + kv.pool(group).num_cached();
    const GroupPlan& plan = runner->memory_plan().groups[group];
    out.kv_bytes_used += held * plan.block_bytes;
  }
  out.kv_bytes = runner->memory_plan().kv_bytes;
  const ElasticPools* const all_pools[] = {&pools, draft_pools};
  for (const ElasticPools* each : all_pools) {
    if (each == nullptr) continue;
    out.kv_reserved_bytes += each->reserved_bytes();
    out.kv_backed_bytes += each->backed_bytes();
    out.kv_bound_bytes += each->bound_bytes();
  }
  out.kv_short = kv_short;
  out.kv_stalled = kv_stalled;
  out.preemptions_total = scheduler.preemptions_total();
  out.adapters = adapters.states();
  if (disk != nullptr) {
    out.store = disk->link.stats();
    out.store.chunks_dropped += disk->saver.offers_dropped();
  }
  return out;
}
void Engine::Impl::publish_watch() {
  recorder.watch(watch_port.wanted.load(std::memory_order_relaxed));
  if (disk != nullptr) disk->link.record_moves(recorder.moved());
  if (!recorder.on()) return;
  auto watch = disk == nullptr
                   ? recorder.take(scheduler, kv, 0, {})
                   : recorder.take(scheduler, kv, disk->link.chunk_blocks(), disk->link.pinned());
  if (disk != nullptr && watch->has_prefixes) disk->link.ask_pinned();
  if (!watch_port.out.try_post(watch)) recorder.lost(*watch);
}
}  // namespace hearth::engine
