#pragma once
// Settings of a worker that serves, as the broker passes them on: one JSON text on its command
// line. A new setting of the engine is a member here, its name in bind.h, and its key and range in
// daemon/broker/config/settings.h.

#include <cstdint>
#include <string>
#include <vector>

#include "ipc/schema/sampling.h"

namespace hearth::ipc {

/// The part of [worker] in hearth.toml that concerns the engine, its device and its prompts.
struct EngineSettings {
  /// cpu; cuda:N; auto: a GPU where hearth-worker-cuda is installed and an NVIDIA driver is loaded,
  /// else the CPU. Passed on unchanged where a worker program is configured. The default stays cpu,
  /// because that worker has run on only one kind of GPU so far.
  std::string device = "cpu";
  int64_t threads = 0;             ///< 0: one per physical core
  std::string cpu_variant;         ///< "": best this CPU has
  std::string numerics = "exact";  ///< or fast: a GPU's cuBLASLt for prompts, where installed
  /// Of weights: memory; file: a CPU holds `weight_bytes` of the matrices in memory and reads the
  /// others from the file at every step.
  std::string mapping = "memory";
  int64_t weight_bytes = 0;
  std::string kv_type = "f16";
  int64_t kv_bytes = 0;  ///< 0: the engine's own choice
  int64_t block_size = 16;
  int64_t context_length = 0;  ///< 0: the model's
  int64_t max_seqs = 64;
  int64_t max_step_tokens = 512;
  std::string policy = "continuous";
  bool chunked_prefill = true;
  double waiting_served_ratio = 0.3;
  bool prefix_cache = true;
  std::string speculation = "lookup";  ///< or off
  std::string draft = "auto";  ///< MODEL-dflash, -eagle3, -medusa, -draft; none; a file, or a name
  bool prefix_store = true;    ///< keep prefixes on disk too
  int64_t prefix_store_bytes = int64_t{8} << 30;   ///< of one model's database
  int64_t prefix_owner_bytes = 0;                  ///< of one owner in it; 0: no bound
  int64_t prefix_pinned_bytes = int64_t{2} << 30;  ///< pinned in it
  int64_t prefix_ram_bytes = int64_t{4} << 30;     ///< host memory that backs a GPU's; 0: none
  int64_t adapter_bytes = int64_t{1} << 30;        ///< of all adapters of a model in memory
  /// Format of calls if the chat template does not use tools: template (calls are refused), hermes.
  std::string tool_form = "template";
  std::string prefix_restore = "auto";  ///< always, both: even where it does not pay; for tests
  bool operator==(const EngineSettings&) const = default;
};

/// A device of a model in stages.
struct StageSettings {
  std::string device;  ///< its name
  std::vector<int32_t> cores{};
  int64_t threads = 0;       ///< 0: one per physical core of these
  int64_t memory_bytes = 0;  ///< 0: it shares ServeSettings::memory_bytes
  std::string kind = "cpu";  ///< cpu, or cuda:N
  bool operator==(const StageSettings&) const = default;
};

struct ServeSettings {
  EngineSettings engine;
  SamplingSettings sampling;  ///< of the configuration, for this model
  std::string log_level = "info";
  std::string prefix_dir;         ///< of the databases of prefixes; "": none are kept
  std::string kv_events = "off";  ///< or shared, all: the prefixes whose events are reported
  int64_t memory_bytes = 0;       ///< for all models together; 0: no budget is set
  std::vector<int32_t> cores{};   ///< that it may use; empty: all
  /// Of a model in stages, in their order; empty: one device computes it.
  std::vector<StageSettings> stages{};
  bool split = false;            ///< each has a share of every layer in place of some layers
  bool spare_stages = false;     ///< the first stage computes all layers if they fit there
  bool experts_apart = false;    ///< the second of two computes the experts of all layers, no layer
  int64_t hot_expert_bytes = 0;  ///< of these, those most used, on the first, too
  bool operator==(const ServeSettings&) const = default;
};

}  // namespace hearth::ipc
