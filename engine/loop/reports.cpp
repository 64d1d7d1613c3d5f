// What an engine tells of its requests and of itself.

#include <algorithm>

#include "engine/kv/memory_plan.h"
#include "engine/loop/engine_impl.h"

namespace hearth::engine {
namespace {

constexpr int64_t kProgressEveryUs = 100'000;
}  // namespace

void Engine::Impl::say_started(const StepPlan& plan) {
  for (const PlannedRows& rows : plan.rows) {
    if (!rows.starts_request) continue;
    LiveRequest& live = *rows.seq->request;
    live.started_us = now_us;
    live.cached_tokens = std::min(live.cached_tokens, live.prompt_size());
    live.disk_tokens += std::clamp(live.cached_tokens - live.restored_from, 0,
                                   std::max(0, live.restored_until - live.restored_from));
    const PrefillRun cached{0, live.cached_tokens};
    live.saved_us = 0;  // what was never measured is not told
    if (scheduler.cost().knows(cached)) {
      live.saved_us = std::max<int64_t>(
          0, static_cast<int64_t>(scheduler.cost().prefill_us(cached)) - live.restore_us);
    }
    live.miss = miss_of(live);
    live.missed_from = live.cached_tokens;
    totals.prompt_tokens_restored += static_cast<uint64_t>(live.disk_tokens);
    totals.prompt_tokens_total += static_cast<uint64_t>(live.prompt_size());
    totals.prompt_tokens_cached += static_cast<uint64_t>(live.cached_tokens);
    events.emplace_back(
        StartedEvent{live.request.id, live.cached_tokens, now_us - live.request.received_us});
  }
}

MissReason Engine::Impl::miss_of(const LiveRequest& live) const {
  if (!live.request.use_prefix_cache) return MissReason::kOff;
  const int32_t block_size = kv.block_size();
  const int32_t cached = live.cached_tokens / block_size;
  if (cached >= (live.prompt_size() - 1) / block_size) return MissReason::kNone;
  if (live.loads_beside) return MissReason::kBeside;
  if (live.store_slow) return MissReason::kSlow;
  if (cached == 0) return MissReason::kNew;
  const int32_t others = kv.continuations(live.scope, live.request.prompt, cached);
  return others > 0 ? MissReason::kOther : MissReason::kEnded;
}
void Engine::Impl::say_done(LiveRequest& live) {
  live.ended = true;
  ended.push_back(&live);
  const int64_t received_us = live.request.received_us;
  RequestDoneEvent done;
  done.id = live.request.id;
  done.prompt_tokens = live.prompt_size();
  done.cached_tokens = live.cached_tokens;
  done.cached_disk_tokens = live.disk_tokens;
  done.miss = live.miss;
  // It was not as expected.
  if (live.miss == MissReason::kBeside && live.disk_tokens == 0) done.miss = MissReason::kEnded;
  done.missed_from = live.missed_from;
  done.restore_us = live.restore_us;
  done.saved_us = live.saved_us;
  done.output_tokens = live.output_tokens;
  done.preemptions = live.preemptions;
  done.speculation = live.speculation;
  done.queue_us = live.started_us.value_or(now_us) - received_us;
  if (live.first_token_us.has_value()) {
    done.prefill_us = *live.first_token_us - *live.started_us;
    done.ttft_us = *live.first_token_us - received_us;
  }
  if (live.sample0_tokens > 1) {
    done.tpot_us =
        static_cast<double>(live.last_token0_us - live.first_token0_us) / (live.sample0_tokens - 1);
  }
  if (live.started_us.has_value() && !rehearsing) {
    constexpr double kGain = 0.25;
    const auto took_us = static_cast<double>(now_us - *live.started_us);
    service_us = service_us > 0 ? service_us + kGain * (took_us - service_us) : took_us;
  }
  events.emplace_back(done);
}

// Those before it and those that run end one after the other, as many at once as run now.
int64_t Engine::Impl::wait_us(int32_t position) const {
  const int32_t running = scheduler.num_running();
  if (service_us <= 0 || running == 0) return 0;
  return static_cast<int64_t>(service_us * position / running);
}

void Engine::Impl::say_progress() {
  const auto due = [this](LiveRequest& live) {
    if (live.first_token_us.has_value() || now_us < live.next_progress_us) return false;
    live.next_progress_us = now_us + kProgressEveryUs;
    return true;
  };
  bool any_waits = false;
  for (const auto& live : scheduler.live()) {
    const Sequence& seq = *live->samples.front();
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

EngineSnapshot Engine::Impl::snapshot() const {
  EngineSnapshot out = totals;
  out.time_us = now_us;
  out.num_running = scheduler.num_running();
  out.num_preempted = scheduler.num_preempted();
  out.num_waiting = scheduler.num_waiting() - out.num_preempted;
  for (int32_t group = 0; group < kv.num_groups(); ++group) {
    out.kv_blocks_total.push_back(kv.pool(group).num_blocks());
    out.kv_blocks_used.push_back(kv.pool(group).num_used());
    out.kv_blocks_cached.push_back(kv.pool(group).num_cached());
    const int64_t held = kv.pool(group).num_used() + kv.pool(group).num_cached();
    const GroupPlan& plan = runner->memory_plan().groups[static_cast<size_t>(group)];
    out.kv_bytes_used += static_cast<uint64_t>(held * plan.block_bytes);
  }
  out.kv_bytes = runner->memory_plan().kv_bytes;
  out.preemptions_total = scheduler.preemptions_total();
  out.speculation = speculator.counts();
  out.prefill_tokens_per_s = prefill_rate.per_second(clock.now_us());
  out.decode_tokens_per_s = decode_rate.per_second(clock.now_us());
  const double steps_per_s = step_rate.per_second();
  out.step_ms_recent = steps_per_s > 0 ? 1000 / steps_per_s : 0;
  if (disk != nullptr) out.store = disk->stats();
  return out;
}
void Engine::Impl::tell_watchers() {
  recorder.watch(watch_port.wanted.load(std::memory_order_relaxed));
  if (disk != nullptr) disk->note_moves(recorder.moved());
  if (!recorder.on()) return;
  auto watch = disk == nullptr ? recorder.take(scheduler, kv, 0, {})
                               : recorder.take(scheduler, kv, disk->chunk_blocks(), disk->pinned());
  if (disk != nullptr && watch->has_prefixes) disk->ask_pinned();
  if (!watch_port.out.try_post(watch)) recorder.lost(*watch);
}
}  // namespace hearth::engine
