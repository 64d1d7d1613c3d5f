#pragma once
// What a worker says of its engine, a few times a second.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace hearth::ipc {

/// Guesses verified: of a request, or of a worker's engine so far; see engine::SpeculationCounts.
struct SpeculationStats {
  uint64_t verifications = 0;  ///< times that a sequence had guesses in a step
  uint64_t drafted_tokens = 0;
  uint64_t accepted_tokens = 0;
  std::vector<uint64_t> drafted_at;   ///< by place among the guesses of a step, to the last used
  std::vector<uint64_t> accepted_at;  ///< of them
  double mean_accepted = 0;           ///< accepted_tokens / verifications
  double saved_ms = 0;                ///< estimate: plain decoding would have taken so much longer
  bool operator==(const SpeculationStats&) const = default;
};

/// A worker's store of prefixes on disk; see engine::StoreStats.
struct StoreSnapshot {
  std::string state = "off";  ///< off, writing, reading (another process writes), degraded
  uint64_t entries = 0;       ///< chunks of about a MiB
  uint64_t bytes = 0;
  uint64_t budget_bytes = 0;
  uint64_t chunks_loaded = 0;
  uint64_t chunks_saved = 0;
  uint64_t chunks_evicted = 0;
  uint64_t chunks_dropped = 0;  ///< not written: queue full, disk full, an error
  uint64_t chunks_refused = 0;  ///< damaged, or not ours
  uint64_t pins_refused = 0;    ///< their owner has pinned as much as may be
  std::string last_error;
  // Of a worker on a GPU: host memory in front of the disk, or alone.
  uint64_t ram_budget_bytes = 0;  ///< 0: none
  uint64_t ram_bytes = 0;
  uint64_t ram_pinned_bytes = 0;  ///< of them, of chunks that are pinned on disk
  uint64_t ram_chunks = 0;
  uint64_t ram_loaded = 0;  ///< of chunks_loaded, those that came from it
  uint64_t ram_evicted = 0;
  bool operator==(const StoreSnapshot&) const = default;
};

/// A worker's GPU as its management library sees it, whoever uses it; read once a second. What that
/// does not say is empty, or -1.
struct GpuSnapshot {
  std::string name;    ///< "NVIDIA H200"
  std::string driver;  ///< its version
  int64_t memory_used_bytes = -1;
  int64_t memory_total_bytes = -1;
  int32_t sm_clock_mhz = -1;
  int32_t sm_clock_max_mhz = -1;
  int32_t memory_clock_mhz = -1;
  int64_t power_mw = -1;
  int64_t power_limit_mw = -1;
  int32_t temperature_c = -1;
  int32_t utilization_percent = -1;  ///< of the last second or so, in which anything ran
  std::string throttled;             ///< why its clocks are lower than they could be; "": nothing
  bool operator==(const GpuSnapshot&) const = default;
};

/// What a worker took of a device with memory of its own.
struct DeviceMemory {
  uint64_t planned_bytes = 0;   ///< weights, KV, buffers: known ahead, to the byte
  uint64_t reserved_bytes = 0;  ///< for captured steps and the driver: not known ahead
  uint64_t taken_bytes = 0;     ///< that went beside the plan, by whomever, while it was loaded
  uint64_t graph_bytes = 0;     ///< of them, while steps were captured
  bool operator==(const DeviceMemory&) const = default;
};

/// What a token leaves out of a mixture of experts; all zero of a model that is none.
struct ExpertUse {
  uint64_t unused_parameters = 0;  ///< of the experts that one token does not use
  uint64_t bytes = 0;              ///< of all experts, in the model's file
  double share = 0;                ///< of them that one token uses
  bool operator==(const ExpertUse&) const = default;
};

/// A worker's engine after a step; see engine::EngineSnapshot.
struct WorkerSnapshot {
  uint64_t num_steps = 0;
  int32_t num_running = 0;
  int32_t num_waiting = 0;
  int32_t num_preempted = 0;
  std::vector<int32_t> kv_blocks_total;   ///< per layer group
  std::vector<int32_t> kv_blocks_used;    ///< referenced by sequences
  std::vector<int32_t> kv_blocks_cached;  ///< unreferenced, held by the prefix index
  uint64_t kv_bytes = 0;
  uint64_t kv_bytes_used = 0;  ///< of them in blocks that hold something: used or cached
  uint64_t prompt_tokens_total = 0;
  uint64_t prompt_tokens_cached = 0;
  uint64_t prefill_tokens_total = 0;
  uint64_t decode_tokens_total = 0;
  uint64_t preemptions_total = 0;
  SpeculationStats speculation;
  double prefill_tokens_per_s = 0;  ///< in the last seconds
  double decode_tokens_per_s = 0;   ///< in the last seconds
  double step_ms_recent = 0;
  uint64_t prompt_tokens_restored = 0;  ///< of the cached ones, from disk
  StoreSnapshot store;
  std::optional<DeviceMemory> device_memory{};  ///< absent where it computes in the host's
  std::optional<GpuSnapshot> gpu{};             ///< absent on a CPU, and where nothing tells
  bool operator==(const WorkerSnapshot&) const = default;
};

}  // namespace hearth::ipc
