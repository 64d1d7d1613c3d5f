#pragma once
// Computes how much device memory an engine takes, to the byte, before any is allocated. Pure
// arithmetic.

#include <cstdint>
#include <vector>

#include "engine/config.h"
#include "kernels/base/result.h"
#include "models/model.h"

namespace hearth::engine {

struct KvGroup;

/// Output rows of a step in addition to one per sequence: for prompt logprobs and draft tokens.
inline constexpr int32_t kExtraOutputs = 32;
/// Branches of draft tokens in a step, each with a block table of its own; and of one sequence.
inline constexpr int32_t kMaxBranches = 16;
inline constexpr int32_t kMaxBranchesOfSequence = models::kMostStores;

struct GroupPlan {
  int32_t num_blocks = 0;
  int64_t block_bytes = 0;
  int32_t max_blocks = 0;  ///< of one sequence: row stride of the block table; 0: recurrent, none
  int32_t extent_blocks = 0;  ///< blocks that are backed together; 0: all are, from the start
  int32_t num_extents() const {
    return extent_blocks == 0 ? 0 : (num_blocks + extent_blocks - 1) / extent_blocks;
  }
};

/// Device addresses of a step's index, as offsets in bytes into one buffer. Counts in int32.
struct IndexLayout {
  size_t counts = 0, query_start = 0, context_len = 0, output_rows = 0;
  size_t token_ids = 0, positions = 0, seq_idx = 0;
  size_t states = 0;  ///< StateStep per sequence, with a recurrent group
  std::vector<size_t> slot_mapping, block_table;  ///< per group
  size_t branch_counts = 0;                       ///< of models::StepArgs::also_stored
  size_t adapted_counts = 0;                      ///< of models::StepArgs::adapted, three each
  std::vector<size_t> branch_slots;  ///< per group: (kMaxBranchesOfSequence, max_outputs)
  size_t bytes = 0;
};

struct MemoryPlan {
  int32_t context_length = 0;
  int32_t max_seqs = 0;
  int32_t max_step_tokens = 0;  ///< rows of a step
  int32_t max_outputs = 0;
  int32_t block_size = 0;
  std::vector<GroupPlan> groups;
  IndexLayout index;
  uint64_t kv_bytes = 0;
  uint64_t kv_floor_bytes = 0;  ///< EngineConfig::kv_floor_bytes
  uint64_t index_bytes = 0;
  uint64_t logits_bytes = 0;
  uint64_t activation_bytes = 0;
  /// The groups of a model with this plan, for KvCache.
  std::vector<KvGroup> kv_groups(const models::ModelInfo& info) const;
  /// Makes the pools elastic: extents fill at least a granule of the device's memory. 0: they are
  /// not elastic.
  void set_extents(size_t granule);
  /// Extents of each group for so many bytes of all pools, in proportion to their sizes; at least
  /// those without which no sequence could run a step.
  std::vector<int32_t> extents_within(uint64_t bytes) const;
  std::vector<int32_t> floor_extents() const { return extents_within(kv_floor_bytes); }
  /// Bytes that are always the model's: those of floor_extents(), or all of pools that are not
  /// elastic.
  uint64_t floor_bytes() const;
  uint64_t total_bytes() const { return kv_bytes + index_bytes + logits_bytes + activation_bytes; }
};

/// The configuration for this model. An encoder computes a text in one step, keeps K and V in f32
/// for a few texts, and caches and drafts nothing, regardless of the given configuration. A model
/// that denoises does the same in each pass. Unchanged for models that write from left to right.
EngineConfig config_for(const EngineConfig& config, const models::ModelInfo& info);

/// Bytes of `kv_bytes` for that many blocks of the group; of a recurrent group, for the states of
/// max_seqs sequences.
int64_t bytes_for(const models::LayerGroup& group, const EngineConfig& config, int64_t blocks);

/// The `kv_bytes` with which every group that has KV gets that many blocks, and a recurrent one the
/// states of max_seqs sequences.
uint64_t kv_bytes_for(const models::ModelInfo& info, const EngineConfig& config, int64_t blocks);

/// kInvalidArgument names the field and its range; kOutOfMemory holds the bytes available and the
/// bytes that the pools need at least.
Result<MemoryPlan> plan_memory(const EngineConfig& config, const models::Model& model,
                               uint64_t device_free_bytes);

}  // namespace hearth::engine
