#pragma once
// Configuration of the engine: plain data, checked by Engine::create.

#include <cstddef>
#include <cstdint>

#include "kernels/ops/kv_types.h"

namespace hearth::engine {

enum class SchedulerPolicy {
  kContinuous,  ///< sequences join and leave at every step
  kStatic,      ///< a batch is filled and runs until all its sequences end; for comparison
};

struct SchedulerConfig {
  SchedulerPolicy policy = SchedulerPolicy::kContinuous;
  int32_t max_seqs = 64;          ///< sequences running at once
  int32_t max_step_tokens = 512;  ///< rows of one step, at most
  int32_t max_queue = 256;        ///< requests waiting; more are kBusy
  bool chunked_prefill = true;    ///< false: whole prompts, governed by waiting_served_ratio
  /// As TGI defines it: a prefill pauses decode when waiting/running reaches this ratio. Only
  /// without chunked prefill.
  double waiting_served_ratio = 0.3;
  double decode_step_stretch = 3.0;  ///< bound on a step with decode rows, in plain decode steps
  /// Bound on a step without decode rows; or decode_step_stretch plain steps of one row if that is
  /// longer.
  int64_t prefill_step_us = 250'000;
  int64_t aging_us = 2'000'000;  ///< a class that is passed over this long rises by one rank
};

/// Rivals of a draft token: the second, third and fourth best at its place.
inline constexpr int32_t kMaxRivals = 3;

/// Adapters of one request.
inline constexpr size_t kMostAdapters = 4;

/// Drafting tokens and verifying several in one step. Changes speed, never text.
struct SpeculationConfig {
  bool enabled = true;
  bool lookup = true;      ///< draft by looking up earlier text of the sequence
  int32_t max_width = 8;   ///< draft tokens verified per sequence and step, at most
  int32_t max_rivals = 2;  ///< of each draft token, at most; each begins a branch
  /// Verify exactly this many draft tokens, whatever they cost; 0: as many as pay. For tests and
  /// measurements.
  int32_t fixed_width = 0;
  uint64_t draft_kv_bytes = 0;  ///< for the draft model's KV pools; as EngineConfig::kv_bytes
};

/// Whether a request computes the front of a stored prefix while its end is loaded.
enum class RestoreOverlap {
  kByRates,  ///< if that is enough faster; see restore_plan.h
  kAlways,   ///< for tests
  kNever,
};

/// Prefixes whose coming and going the engine reports (engine/kv/cache_events.h).
enum class PublishedScopes {
  kNone,
  kShared,  ///< those that requests share by a name
  kAll,     ///< those of single owners, too
};

struct EngineConfig {
  kernels::KvTypes kv_type = {};  ///< of K and of V
  int32_t block_size = 16;
  /// Bytes for all KV pools; 0: enough for max_seqs half-full contexts, at most a quarter of the
  /// device's free memory (half if a quarter does not hold one full context). Split over layer
  /// groups in proportion to what a full context needs.
  uint64_t kv_bytes = 0;
  /// Memory that the pools keep when idle and may always take; the rest is backed as it is used.
  uint64_t kv_floor_bytes = 16 << 20;
  int32_t context_length = 0;  ///< 0: the model's
  bool prefix_cache = true;
  uint64_t adapter_bytes = 1ull << 30;  ///< of all adapters on the device, at most
  PublishedScopes published = PublishedScopes::kNone;
  /// Restore stored prefixes even where recomputing would be faster; for tests.
  bool always_restore = false;
  /// Only with chunked prefill.
  RestoreOverlap restore_overlap = RestoreOverlap::kByRates;
  /// If the device draws tokens: launch the next step before this one's tokens reach the host.
  bool run_ahead = true;
  SchedulerConfig scheduler;
  SpeculationConfig speculation;
};

}  // namespace hearth::engine
