#include "daemon/worker/serve/to_wire.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/worker/text/prompt_logprobs.h"
#include "kernels/base/numbers.h"

namespace hearth::worker {
namespace {

std::string_view state_name(engine::StoreState state) {
  switch (state) {
    case engine::StoreState::kOff: return "off";
    case engine::StoreState::kWriting: return "writing";
    case engine::StoreState::kReading: return "reading";
    case engine::StoreState::kDegraded: return "degraded";
  }
  return "off";
}

ipc::StoreSnapshot to_wire(const engine::StoreStats& from) {
  return {.state = std::string(state_name(from.state)),
          .entries = from.entries,
          .bytes = from.bytes,
          .budget_bytes = from.budget_bytes,
          .chunks_loaded = from.chunks_loaded,
          .chunks_saved = from.chunks_saved,
          .chunks_evicted = from.chunks_evicted,
          .chunks_dropped = from.chunks_dropped,
          .chunks_refused = from.chunks_refused,
          .pins_refused = from.pins_refused,
          .last_error = from.last_error,
          .ram_budget_bytes = from.ram_budget_bytes,
          .ram_bytes = from.ram_bytes,
          .ram_pinned_bytes = from.ram_pinned_bytes,
          .ram_chunks = from.ram_chunks,
          .ram_loaded = from.ram_loaded,
          .ram_evicted = from.ram_evicted};
}

}  // namespace

namespace {

std::string name(engine::DraftedBy by) {
  switch (by) {
    case engine::DraftedBy::kLookup: return "lookup";
    case engine::DraftedBy::kDraftModel: return "draft";
    case engine::DraftedBy::kDraftLayer: return ipc::kDraftLayerName;
    case engine::DraftedBy::kDraftHeads: return ipc::kDraftHeadsName;
    case engine::DraftedBy::kEagle3: return ipc::kEagle3Name;
    case engine::DraftedBy::kDFlash: return ipc::kDFlashName;
    case engine::DraftedBy::kPrediction: return ipc::kPredictionName;
    case engine::DraftedBy::kScript: return "script";
  }
  return "";
}

}  // namespace

ipc::SpeculationStats to_wire(const engine::SpeculationCounts& from) {
  std::vector<ipc::ProposerStats> by;
  using enum engine::DraftedBy;
  for (const engine::DraftedBy proposer :
       {kLookup, kDraftModel, kDraftLayer, kDraftHeads, kEagle3, kDFlash, kPrediction, kScript}) {
    const auto i = to_underlying(proposer);
    if (from.drafted_by[i] == 0) continue;
    by.push_back({name(proposer), from.drafted_by[i], from.accepted_by[i]});
  }
  // Trailing positions at which no step had a draft are not sent.
  const auto places = std::ranges::find(from.drafted_at, uint64_t{0}) - from.drafted_at.begin();
  return {.verifications = from.verifications,
          .drafted_tokens = from.drafted_tokens,
          .accepted_tokens = from.accepted_tokens,
          .drafted_at = {from.drafted_at.begin(), from.drafted_at.begin() + places},
          .accepted_at = {from.accepted_at.begin(), from.accepted_at.begin() + places},
          .mean_accepted = from.mean_accepted(),
          .saved_ms = from.saved_us / 1000.0,
          .by = std::move(by)};
}

ipc::WorkerSnapshot to_wire(const engine::EngineSnapshot& from) {
  std::vector<ipc::AdapterUse> adapters;
  for (const engine::AdapterState& each : from.adapters) {
    adapters.push_back({each.name, each.bytes, each.num_requests});
  }
  return {.num_steps = from.num_steps,
          .num_running = from.num_running,
          .num_waiting = from.num_waiting,
          .num_preempted = from.num_preempted,
          .kv_blocks_total = from.kv_blocks_total,
          .kv_blocks_used = from.kv_blocks_used,
          .kv_blocks_cached = from.kv_blocks_cached,
          .kv_bytes = from.kv_bytes,
          .kv_bytes_used = from.kv_bytes_used,
          .kv_reserved_bytes = from.kv_reserved_bytes,
          .kv_backed_bytes = from.kv_backed_bytes,
          .kv_bound_bytes = from.kv_bound_bytes,
          .kv_short = from.kv_short,
          .kv_stalled = from.kv_stalled,
          .prompt_tokens_total = from.prompt_tokens_total,
          .prompt_tokens_cached = from.prompt_tokens_cached,
          .prefill_tokens_total = from.prefill_tokens_total,
          .decode_tokens_total = from.decode_tokens_total,
          .preemptions_total = from.preemptions_total,
          .speculation = to_wire(from.speculation),
          .prefill_tokens_per_s = from.prefill_tokens_per_s,
          .decode_tokens_per_s = from.decode_tokens_per_s,
          .step_ms_recent = from.step_ms_recent,
          .prompt_tokens_restored = from.prompt_tokens_restored,
          .store = to_wire(from.store),
          .device_memory = {},
          .gpu = {},
          .adapters = std::move(adapters)};
}

ipc::WorkerReady to_wire(const EngineLoaded& loaded) {
  return {.model = loaded.info.name,
          .architecture = loaded.info.architecture,
          .title = loaded.info.title,
          .file_type = loaded.info.file_type,
          .fingerprint = loaded.info.fingerprint,
          .device = loaded.device.kind + " " + loaded.device.variant,
          .context_length = loaded.context_length,
          .vocab_size = loaded.info.vocab_size,
          .num_parameters = loaded.info.num_parameters,
          .weight_bytes = loaded.info.weight_bytes + loaded.draft_weight_bytes,
          .kv_bytes = loaded.kv_bytes,
          .load_ms = loaded.load_ms,
          .draft = loaded.draft,
          .sampling = loaded.sampling,
          .experts = loaded.experts,
          .chat_template = loaded.templates != nullptr && !loaded.templates->empty(),
          .block_size = loaded.block_size,
          .num_blocks = loaded.num_blocks,
          .can_sleep = loaded.can_sleep};
}

namespace {

ipc::CanvasState to_wire(const engine::CanvasView& from, const models::Tokenizer& tokenizer) {
  ipc::CanvasState out{.sample = from.sample,
                       .pass = from.pass,
                       .passes = from.passes,
                       .texts = {},
                       .confidence = from.confidence};
  for (const int32_t token : from.tokens) {
    out.texts.push_back(token < 0 ? "" : shown_token(tokenizer, token));
  }
  return out;
}

}  // namespace

ipc::Event to_wire(const engine::ProgressEvent& from, const models::Tokenizer& tokenizer) {
  if (from.queue_position > 0) {
    return ipc::QueuedEvent{.reason = from.waiting_for,
                            .position = from.queue_position - 1,
                            .estimate_ms = from.estimate_us / 1000};
  }
  if (!from.canvas) {
    return ipc::ProgressEvent{.prompt_done = from.prompt_tokens_done,
                              .prompt_total = from.prompt_tokens};
  }
  return ipc::ProgressEvent{.prompt_done = from.prompt_tokens_done,
                            .prompt_total = from.prompt_tokens,
                            .canvas = to_wire(*from.canvas, tokenizer)};
}

}  // namespace hearth::worker
