#pragma once
// The state of a worker's engine, as it reports it a few times a second.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace hearth::ipc {

/// The model's own layer for drafting, in settings, requests and reports.
inline constexpr const char* kDraftLayerName = "mtp";
/// Heads that draft, from a file of their own, in reports.
inline constexpr const char* kDraftHeadsName = "medusa";
inline constexpr const char* kEagle3Name = "eagle3";
inline constexpr const char* kDFlashName = "dflash";

/// A request's own prediction of its text, in reports.
inline constexpr const char* kPredictionName = "prediction";

/// The drafted tokens of one proposer.
struct ProposerStats {
  std::string name;  ///< lookup, draft (a draft model), mtp (its own layer), medusa (heads),
                     ///< eagle3, dflash, prediction, script
  uint64_t drafted_tokens = 0;
  uint64_t accepted_tokens = 0;
  bool operator==(const ProposerStats&) const = default;
};

/// Drafted tokens of one request, or of a worker's engine so far; see engine::SpeculationCounts.
struct SpeculationStats {
  uint64_t verifications = 0;  ///< times that a sequence had drafted tokens in a step
  uint64_t drafted_tokens = 0;
  uint64_t accepted_tokens = 0;
  std::vector<uint64_t> drafted_at;   ///< by position in the draft, up to the last one used
  std::vector<uint64_t> accepted_at;  ///< of these, accepted
  double mean_accepted = 0;           ///< accepted_tokens / verifications
  double saved_ms = 0;                ///< estimate: the extra time that plain decoding would take
  std::vector<ProposerStats> by;      ///< of each proposer whose tokens were verified
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
  uint64_t chunks_refused = 0;  ///< damaged, or written with another key
  uint64_t pins_refused = 0;    ///< because the owner's bound on pins is reached
  std::string last_error;
  // On a GPU: host memory in front of the disk, or without a disk.
  uint64_t ram_budget_bytes = 0;  ///< 0: none
  uint64_t ram_bytes = 0;
  uint64_t ram_pinned_bytes = 0;  ///< of these, of chunks pinned on disk
  uint64_t ram_chunks = 0;
  uint64_t ram_loaded = 0;  ///< of chunks_loaded, those read from host memory
  uint64_t ram_evicted = 0;
  bool operator==(const StoreSnapshot&) const = default;
};

/// A worker's GPU as its management library reports it, all its users included; read once a second.
/// Values that it does not report are empty or -1.
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
  int32_t utilization_percent = -1;  ///< share of about the last second in which a kernel ran
  std::string throttled;             ///< why its clocks are reduced; "": they are not
  bool operator==(const GpuSnapshot&) const = default;
};

/// Memory that a worker took on a device with its own memory.
struct DeviceMemory {
  uint64_t planned_bytes = 0;   ///< weights, KV, buffers: known in advance, to the byte
  uint64_t reserved_bytes = 0;  ///< for captured steps and the driver: not known in advance
  uint64_t taken_bytes = 0;     ///< taken in addition to the plan during loading, by any process
  uint64_t graph_bytes = 0;     ///< of these, while steps were captured
  bool operator==(const DeviceMemory&) const = default;
};

/// The experts that a token uses in a mixture of experts; all zero for other models.
struct ExpertUse {
  uint64_t unused_parameters = 0;  ///< of the experts that one token does not use
  uint64_t bytes = 0;              ///< of all experts, in the model's file
  double share = 0;                ///< share of them that one token uses
  bool operator==(const ExpertUse&) const = default;
};

/// An adapter in a worker's memory.
struct AdapterUse {
  std::string name;
  uint64_t bytes = 0;
  int32_t requests = 0;  ///< live ones that use it
  bool operator==(const AdapterUse&) const = default;
};

/// One device of a model in stages or shares, and the memory that is taken there.
struct StageUse {
  std::string device;
  int32_t first_layer = 0;
  int32_t end_layer = 0;  ///< the first that is in the next stage
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;      ///< of the reserved KV, that of its layers
  uint64_t other_bytes = 0;   ///< activations; in the first stage, logits and index, too
  uint64_t budget_bytes = 0;  ///< of the device; 0: it shares that of all models
  bool experts = false;       ///< it has the experts of these layers alone
  bool share = false;         ///< it has some heads and rows of each of them
  bool operator==(const StageUse&) const = default;
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
  uint64_t kv_bytes_used = 0;  ///< of these, in blocks that are used or cached
  // Memory of all pools, a draft model's included.
  uint64_t kv_reserved_bytes = 0;  ///< addresses
  uint64_t kv_backed_bytes = 0;    ///< of these, backed by memory
  uint64_t kv_bound_bytes = 0;     ///< that the broker lets it back
  bool kv_short = false;           ///< a request waits for blocks that a higher bound could provide
  bool kv_stalled = false;         ///< and until then nothing is computed
  uint64_t prompt_tokens_total = 0;
  uint64_t prompt_tokens_cached = 0;
  uint64_t prefill_tokens_total = 0;
  uint64_t decode_tokens_total = 0;
  uint64_t preemptions_total = 0;
  SpeculationStats speculation;
  double prefill_tokens_per_s = 0;  ///< in the last seconds
  double decode_tokens_per_s = 0;   ///< in the last seconds
  double step_ms_recent = 0;
  uint64_t prompt_tokens_restored = 0;  ///< of the cached tokens, from disk
  StoreSnapshot store;
  std::optional<DeviceMemory> device_memory{};  ///< absent if it computes in host memory
  std::optional<GpuSnapshot> gpu{};             ///< absent on a CPU and without NVML
  std::vector<AdapterUse> adapters{};           ///< in memory
  bool operator==(const WorkerSnapshot&) const = default;
};

}  // namespace hearth::ipc
