// What an engine does before the first request and in idle moments: it measures the cost of steps,
// maps memory and packs late weights.

#include <algorithm>
#include <tuple>

#include "engine/kv/memory_plan.h"
#include "engine/loop/engine_impl.h"
#include "kernels/base/check.h"
#include "kernels/base/log.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {
namespace {

// The warm-up's prompt is long enough to show the cost of one pass over the weights. Four outputs
// are three plain decode steps; the first of these is slower, as it touches new pages.
constexpr RequestId kWarmUpId = ~RequestId{0};
constexpr int32_t kWarmUpPrompt = 32;
constexpr int32_t kWarmUpOutputs = 4;
/// In an idle moment, when a request may arrive: one step of each kind.
constexpr int32_t kFewOutputs = 2;
constexpr int32_t kIdlePrompt = 4;
/// Draft tokens per step of the warm-up's second part, two steps each: the cost of 2, 4 and 8 rows.
constexpr int32_t kWarmUpWidths[] = {1, 3, 7};
constexpr int32_t kWarmUpDrafts = 4;
constexpr int32_t kWarmUpMoreOutputs = 40;
/// A request that arrives meanwhile waits for it: some milliseconds.
constexpr uint64_t kPackedAtOnce = 8 << 20;

}  // namespace

void Engine::Impl::warm_up(bool at_once) {
  HEARTH_CHECK(scheduler.live().empty());
  memory_touched = disk == nullptr;
  pack_more(0);
  while (at_once && !memory_touched) memory_touched = !disk->link.warm_up();
  // A draft model is judged by its cost and by that of steps of several rows, before any request.
  if (at_once || speculator.has_draft_model()) {
    pack_more(UINT64_MAX);
    run_warm_up({.prompt = kWarmUpPrompt, .outputs = kWarmUpOutputs, .widths = true});
  } else {
    costs_wanted = true;
  }
}

void Engine::Impl::pack_more(uint64_t bytes) {
  const uint64_t left = runner->pack_more(bytes);
  if (weights_late != (left > 0)) {
    log_info(left > 0 ? "weights_late" : "weights_packed", "bytes={} steps={}", left,
             counters.num_steps());
  }
  const bool whole = weights_late && left == 0;
  weights_late = left > 0;
  scheduler.set_weights_late(weights_late);
  if (whole) weights_intact();
}

bool Engine::Impl::weights_intact() {
  if (model_lost || !weights_check) return !model_lost;
  Result<void> intact = weights_check();
  if (intact.ok()) return true;
  model_lost = intact.take_error();
  log_error("model_lost", "code={} message=\"{}\"", name(model_lost->code), model_lost->message);
  for (const auto& live : scheduler.live()) {
    if (!live->ended) fail(*live, *model_lost);
  }
  remove_ended();
  events.emplace_back(ModelLostEvent{*model_lost});
  return false;
}

// Packs for that long, or until another request arrives.
void Engine::Impl::pack_weights(int64_t for_us) {
  const int64_t end_us = clock.now_us() + for_us;
  const size_t live = scheduler.live().size();
  do {
    pack_more(kPackedAtOnce);
    take_commands();
    publish();
  } while (weights_late && clock.now_us() < end_us && scheduler.live().size() <= live && !stopping);
}

bool Engine::Impl::measure_costs() {
  if (!costs_wanted) return true;
  // Only free blocks are used: cached prefixes are worth more than measured costs.
  bool room = true;
  for (int32_t g = 0; g < kv.num_groups(); ++g) {
    const int32_t wanted = kv.peak_blocks(g, kWarmUpPrompt + kWarmUpMoreOutputs, kWarmUpPrompt);
    room = room && kv.pool(g).num_ready() + kv.pool(g).num_growable() >= wanted;
  }
  // Earlier requests may have shown the cost of prefill; the other costs matter only to drafts.
  const auto plain = [this] {
    return scheduler.cost().measured_prefill() ||
           run_warm_up({.prompt = kWarmUpPrompt, .outputs = kFewOutputs, .yielding = true});
  };
  const auto widths = [this] {
    return !speculator.enabled() ||
           run_warm_up(
               {.prompt = kIdlePrompt, .outputs = kFewOutputs, .widths = true, .yielding = true});
  };
  costs_wanted = room && !(plain() && widths());
  return !costs_wanted;
}

// Runs steps of a request of its own, which leave nothing but measured costs. False: ended by a
// command.
bool Engine::Impl::run_warm_up(const WarmUpPart& part) {
  const auto kept = std::tuple(counters, steps_without_drafts);
  const int32_t context = runner->memory_plan().context_length;
  Request request;
  request.id = kWarmUpId;
  request.max_tokens = part.outputs;
  request.prompt.assign(std::clamp(context - part.outputs, 1, part.prompt), 0);
  request.use_prefix_cache = false;
  request.sampling.temperature = 0;
  if (!runner->info().generates) {
    request.pooling = models::Pooling::kMean;
    request.max_tokens = 0;
  }
  if (runner->info().denoises()) request.canvas.emplace();
  const auto prompt_tokens = size32(request.prompt);
  const bool widths = part.widths && speculator.enabled() &&
                      prompt_tokens + part.outputs + kWarmUpMoreOutputs <= context;
  if (widths) request.max_tokens += kWarmUpMoreOutputs;
  // The context or the pool is too small: the scheduler learns from requests.
  if (!scheduler.add(std::move(request), "").ok()) return true;
  warming_up = true;
  bool whole = true;
  const auto next = [&] {
    whole = whole && !(part.yielding && inbox.size() > 0);
    return whole && advance();
  };
  if (widths) {
    for (int32_t outputs = 0; outputs < part.outputs; ++outputs) next();
    for (const int32_t width : kWarmUpWidths) {
      speculator.force(width);
      next();
      next();
    }
    // The draft model's first call computes the prompt and maps memory for the next calls.
    for (int32_t call = 0; speculator.has_paid_proposer() && call < kWarmUpDrafts; ++call) {
      scheduler.decoding(decoding);
      speculator.warm_up(decoding);
      speculator.force(kWarmUpWidths[0]);
      next();
    }
    speculator.force(0);
  } else {
    while (next()) {
    }
  }
  if (LiveRequest* live = scheduler.find(kWarmUpId)) end_request(*live, FinishReason::kCancelled);
  remove_ended();
  warming_up = false;
  events.clear();
  std::tie(counters, steps_without_drafts) = kept;
  return whole;
}
}  // namespace hearth::engine
