#include "engine/kv/memory_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "engine/kv/kv_cache.h"
#include "kernels/base/numbers.h"

namespace hearth::engine {
namespace {

constexpr int32_t kMaxContext = 1 << 24;
constexpr int32_t kMaxSeqs = 4096;
/// Of a model that denoises, unless the configuration sets another: a step has room for all of it.
constexpr int32_t kUsualCanvasContext = 4096;
constexpr int32_t kMaxStepTokens = 1 << 16;
constexpr double kUsefulContexts = 4;
constexpr double kUsefulTokens = 32768;
/// Snapshots of states that are worth memory beyond what sequences hold.
constexpr int32_t kUsefulSnapshots = 64;

Error bad(std::string_view field, const std::string& met, const std::string& want) {
  return Error::invalid(fmt::format("{} is {}, want {}", field, met, want), std::string(field));
}

template <typename T>
Result<void> check_range(std::string_view field, T value, T min, T max) {
  if (value >= min && value <= max) return {};  // false for NaN
  return bad(field, fmt::format("{}", value), fmt::format("{} to {}", min, max));
}

Result<void> check_config(const EngineConfig& config, const models::ModelInfo& info) {
  const SchedulerConfig& s = config.scheduler;
  HEARTH_TRY(check_range("max_seqs", s.max_seqs, 1, kMaxSeqs));
  HEARTH_TRY(check_range("max_step_tokens", s.max_step_tokens, 1, kMaxStepTokens));
  HEARTH_TRY(check_range("max_queue", s.max_queue, 0, 1 << 20));
  HEARTH_TRY(check_range("waiting_served_ratio", s.waiting_served_ratio, 0.0, 1e6));
  HEARTH_TRY(check_range("decode_step_stretch", s.decode_step_stretch, 1.0, 1e6));
  HEARTH_TRY(check_range<int64_t>("prefill_step_us", s.prefill_step_us, 1, 3'600'000'000));
  HEARTH_TRY(check_range<int64_t>("aging_us", s.aging_us, 1, 3'600'000'000));
  const SpeculationConfig& speculation = config.speculation;
  HEARTH_TRY(check_range("speculation.max_width", speculation.max_width, 1, kExtraOutputs));
  HEARTH_TRY(check_range("speculation.fixed_width", speculation.fixed_width, 0, kExtraOutputs));
  HEARTH_TRY(check_range("speculation.max_rivals", speculation.max_rivals, 0, kMaxRivals));
  HEARTH_TRY(check_range("context_length", config.context_length, 0,
                         std::min(info.context_length, kMaxContext)));
  if (config.block_size < kernels::kAttentionTile || config.block_size > 1024 ||
      config.block_size % kernels::kAttentionTile != 0) {
    return bad("block_size", fmt::format("{}", config.block_size),
               fmt::format("a multiple of {} up to 1024", kernels::kAttentionTile));
  }
  if (info.groups.empty() || info.vocab_size <= 0 || info.context_length <= 0) {
    return Error::corrupt(
        fmt::format("the model has {} layer groups, {} tokens and a context of {}",
                    info.groups.size(), info.vocab_size, info.context_length));
  }
  return models::check_kv_types(info, config.kv_type);
}

/// The default number of full contexts that the pools hold: a few, or for a model with a short
/// context as many as hold kUsefulTokens; never more than half of all sequences use.
double useful_contexts(const MemoryPlan& plan) {
  const double few = std::max<double>(kUsefulContexts, kUsefulTokens / plan.context_length);
  return std::min(few, plan.max_seqs / 2.0);
}

int32_t ceil_div(int64_t a, int64_t b) { return narrow<int32_t>((a + b - 1) / b); }

/// Blocks that one sequence with a full context needs while it is computed. As
/// KvCache::peak_blocks.
int32_t full_context_blocks(const models::LayerGroup& group, const MemoryPlan& plan) {
  if (group.recurrent()) return kStateBlocks;
  const int32_t all = ceil_div(plan.context_length, plan.block_size);
  if (group.kind == models::LayerGroup::Kind::kFull) return all;
  return std::min(all, ceil_div(group.window, plan.block_size) +
                           ceil_div(plan.max_step_tokens, plan.block_size) + 1);
}

int32_t useful_states(int32_t max_seqs) { return kStateBlocks * max_seqs + kUsefulSnapshots; }

/// Blocks of states: for all sequences at once, and for snapshots that stay cached; as many of them
/// as `bytes` hold.
int32_t state_blocks(const MemoryPlan& plan, int64_t block_bytes, double bytes) {
  return std::max(kStateBlocks, static_cast<int32_t>(std::min<double>(
                                    useful_states(plan.max_seqs), bytes / as_double(block_bytes))));
}

/// Sets of rows with adapters in a step.
int64_t max_adapted(const MemoryPlan& plan) {
  return narrow<int64_t>(kMostAdapters) * (plan.max_seqs + kMaxBranches);
}

IndexLayout lay_out_index(const MemoryPlan& plan) {
  // Each array starts on its own cache line.
  constexpr size_t kAlign = 64;
  IndexLayout layout;
  const auto place = [&layout](int64_t count) {
    const size_t offset = layout.bytes;
    const size_t bytes = count * sizeof(int32_t);
    layout.bytes += (bytes + kAlign - 1) / kAlign * kAlign;
    return offset;
  };
  layout.counts = place(3);
  const int32_t max_tables = plan.max_seqs + kMaxBranches;
  layout.query_start = place(max_tables + 1);
  layout.context_len = place(max_tables);
  layout.output_rows = place(plan.max_outputs);
  layout.token_ids = place(plan.max_step_tokens);
  layout.positions = place(plan.max_step_tokens);
  layout.seq_idx = place(plan.max_step_tokens);
  const bool states = plan.groups.back().max_blocks == 0;
  constexpr int64_t kStateInts = sizeof(kernels::StateStep) / sizeof(int32_t);
  if (states) layout.states = place(plan.max_seqs * kStateInts);
  for (const GroupPlan& group : plan.groups) {
    layout.slot_mapping.push_back(place(group.max_blocks == 0 ? 0 : plan.max_step_tokens));
  }
  layout.adapted_counts = place(3 * max_adapted(plan));
  const bool branches = !states;  // a state cannot follow several
  layout.branch_counts = place(branches ? 3 : 0);
  for (size_t i = 0; branches && i < plan.groups.size(); ++i) {
    layout.branch_slots.push_back(place(int64_t{kMaxBranchesOfSequence} * plan.max_outputs));
  }
  // The tables come last: only of them the used part is far smaller than the whole.
  for (const GroupPlan& group : plan.groups) {
    layout.block_table.push_back(place(int64_t{max_tables} * group.max_blocks));
  }
  return layout;
}

}  // namespace

std::vector<KvGroup> MemoryPlan::kv_groups(const models::ModelInfo& info) const {
  std::vector<KvGroup> out;
  for (size_t i = 0; i < groups.size(); ++i) {
    const models::LayerGroup& group = info.groups[i];
    const bool sliding = group.kind == models::LayerGroup::Kind::kSliding;
    out.push_back({.num_blocks = groups[i].num_blocks,
                   .window = sliding ? group.window : 0,
                   .recurrent = group.recurrent(),
                   .extent_blocks = groups[i].extent_blocks});
  }
  return out;
}

void MemoryPlan::set_extents(size_t granule) {
  for (GroupPlan& group : groups) {
    group.extent_blocks = granule == 0 ? 0 : ceil_div(narrow<int64_t>(granule), group.block_bytes);
  }
}

std::vector<int32_t> MemoryPlan::extents_within(uint64_t bytes) const {
  std::vector<int32_t> extents;
  const double share = kv_bytes > 0 ? std::min(1.0, as_double(bytes) / as_double(kv_bytes)) : 1;
  for (const GroupPlan& group : groups) {
    if (group.extent_blocks == 0) {
      extents.push_back(0);
      continue;
    }
    const bool recurrent = group.max_blocks == 0;
    const int32_t least = recurrent ? ceil_div(kStateBlocks, group.extent_blocks) : 1;
    const double wanted = share * group.num_blocks / group.extent_blocks;
    const auto whole = static_cast<int32_t>(share < 1 ? wanted : std::ceil(wanted));
    extents.push_back(std::min(group.num_extents(), std::max(least, whole)));
  }
  return extents;
}

uint64_t MemoryPlan::floor_bytes() const {
  const std::vector<int32_t> extents = floor_extents();
  uint64_t bytes = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    const GroupPlan& group = groups[i];
    const int64_t blocks = int64_t{extents[i]} * group.extent_blocks;
    bytes +=
        group.block_bytes *
        (group.extent_blocks == 0 ? group.num_blocks : std::min<int64_t>(blocks, group.num_blocks));
  }
  return bytes;
}

int64_t bytes_for(const models::LayerGroup& group, const EngineConfig& config, int64_t blocks) {
  const int64_t bytes = group.block_bytes(config.kv_type, config.block_size);
  // Half of kv_bytes may be states (plan_memory).
  return bytes *
         (group.recurrent() ? 2 * int64_t{kStateBlocks} * config.scheduler.max_seqs : blocks);
}

uint64_t kv_bytes_for(const models::ModelInfo& info, const EngineConfig& config, int64_t blocks) {
  int64_t kv = 0;
  for (const models::LayerGroup& group : info.groups) {
    if (!group.recurrent()) kv += bytes_for(group, config, blocks);
  }
  const models::LayerGroup& last = info.groups.back();
  if (!last.recurrent()) return kv;
  // More states than were asked for may take their part first: all that are useful, or half.
  const int64_t most = useful_states(config.scheduler.max_seqs) *
                       last.block_bytes(config.kv_type, config.block_size);
  return kv + std::max(bytes_for(last, config, 0), std::min(kv, most));
}

EngineConfig config_for(const EngineConfig& given, const models::ModelInfo& info) {
  EngineConfig config = given;
  if (info.generates && !info.denoises()) return config;
  config.kv_type = kernels::KvType::kF32;
  config.prefix_cache = false;
  config.speculation.enabled = false;
  config.run_ahead = false;
  config.scheduler.chunked_prefill = info.denoises();
  if (info.denoises() && config.context_length == 0) {
    config.context_length = std::min(info.context_length, kUsualCanvasContext);
  }
  // Room for the tokens of two full steps, and a partly filled block for each text.
  const int32_t context =
      std::max(1, config.context_length > 0 ? config.context_length
                                            : std::min(info.context_length, kMaxContext));
  const int64_t tokens = 2 * int64_t{std::max(config.scheduler.max_step_tokens, context)} +
                         int64_t{config.scheduler.max_seqs} * config.block_size;
  config.kv_bytes = 0;
  for (const models::LayerGroup& group : info.groups) {
    config.kv_bytes += group.block_bytes(config.kv_type, config.block_size) *
                       (tokens / std::max(1, config.block_size) + 1);
  }
  return config;
}

Result<MemoryPlan> plan_memory(const EngineConfig& given, const models::Model& model,
                               uint64_t device_free_bytes) {
  const models::ModelInfo& info = model.info();
  const EngineConfig config = config_for(given, info);
  HEARTH_TRY(check_config(config, info));
  MemoryPlan plan;
  plan.context_length = config.context_length > 0 ? config.context_length
                                                  : std::min(info.context_length, kMaxContext);
  plan.max_seqs = config.scheduler.max_seqs;
  plan.block_size = config.block_size;
  plan.kv_floor_bytes = config.kv_floor_bytes;
  // Whole prompts are one step each, and so are prompts with a canvas.
  plan.max_step_tokens = config.scheduler.chunked_prefill && !info.denoises()
                             ? config.scheduler.max_step_tokens
                             : std::max(config.scheduler.max_step_tokens, plan.context_length);
  plan.max_outputs = plan.max_seqs + (info.denoises() ? models::kMostCanvasBlock : kExtraOutputs);

  double full_bytes = 0;  // of one sequence with a full context
  std::vector<int32_t> full_blocks;
  uint64_t least_bytes = 0;
  for (const models::LayerGroup& group : info.groups) {
    GroupPlan& out = plan.groups.emplace_back();
    out.block_bytes = group.block_bytes(config.kv_type, config.block_size);
    if (group.recurrent()) {
      full_blocks.push_back(kStateBlocks);
      continue;
    }
    out.max_blocks = ceil_div(plan.context_length, plan.block_size);
    full_blocks.push_back(full_context_blocks(group, plan));
    full_bytes += as_double(out.block_bytes) * full_blocks.back();
    // A sliding group's window always fits, so that only full groups limit how long a sequence
    // may become.
    const int32_t least = group.kind == models::LayerGroup::Kind::kFull ? 1 : full_blocks.back();
    least_bytes += out.block_bytes * least;
  }
  // States take their part first: at most half of a given size, or an eighth of what is free.
  const bool states = info.groups.back().recurrent();
  double state_bytes = 0;
  if (states) {
    GroupPlan& group = plan.groups.back();
    group.num_blocks = state_blocks(
        plan, group.block_bytes,
        config.kv_bytes > 0 ? as_double(config.kv_bytes) / 2 : as_double(device_free_bytes) / 8);
    state_bytes = as_double(group.num_blocks) * as_double(group.block_bytes);
    plan.kv_bytes += group.num_blocks * group.block_bytes;
    least_bytes += kStateBlocks * group.block_bytes;
  }
  double kv_bytes = std::max(0.0, as_double(config.kv_bytes) - state_bytes);
  if (config.kv_bytes == 0) {
    kv_bytes = std::min(full_bytes * useful_contexts(plan), as_double(device_free_bytes) / 4);
    // At least one sequence with a full context, if the model generates text.
    kv_bytes = std::max(kv_bytes, std::min(full_bytes, as_double(device_free_bytes) / 2));
  }
  const double share = full_bytes > 0 ? kv_bytes / full_bytes : 0;
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    if (info.groups[i].recurrent()) continue;
    // A slot is block_id * block_size + offset, in 31 bits.
    const int32_t most = std::numeric_limits<int32_t>::max() / plan.block_size - 1;
    const double blocks = std::floor(share * full_blocks[i] + 1e-9);
    const bool full = info.groups[i].kind == models::LayerGroup::Kind::kFull;
    plan.groups[i].num_blocks = std::max(full ? 0 : full_blocks[i],
                                         static_cast<int32_t>(std::min(as_double(most), blocks)));
    plan.kv_bytes += plan.groups[i].num_blocks * plan.groups[i].block_bytes;
    if (plan.groups[i].num_blocks > 0) continue;
    return Error::out_of_memory(
        fmt::format("{} bytes for KV blocks, want at least {} (one block per layer "
                    "group); a full context takes {}",
                    static_cast<uint64_t>(kv_bytes), least_bytes,
                    static_cast<uint64_t>(full_bytes)),
        "kv_bytes");
  }
  plan.index = lay_out_index(plan);
  plan.index_bytes = plan.index.bytes;
  plan.logits_bytes = sizeof(float) * plan.max_outputs * (info.generates ? info.vocab_size : 1);
  plan.activation_bytes = model.activation_bytes(plan.max_step_tokens, plan.max_outputs);
  return plan;
}

}  // namespace hearth::engine
