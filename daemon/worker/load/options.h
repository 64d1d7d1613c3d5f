#pragma once
// The options of `hearth-worker-<device> serve`: the model, the socket, the engine's settings.

#include <filesystem>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "ipc/schema/sampling.h"
#include "ipc/schema/serve_settings.h"
#include "kernels/base/log.h"
#include "kernels/base/result.h"

namespace hearth::worker {

struct DeviceOptions {
  /// "auto": the first device of this program's kind; "cpu", or "cuda:N" by CUDA's ordinal after
  /// CUDA_VISIBLE_DEVICES.
  std::string device = "auto";
  int32_t threads = 0;      ///< 0: one per physical core
  std::string cpu_variant;  ///< "": best this CPU has
  /// exact, or fast: on a GPU, cuBLASLt for many rows; a CPU has nothing faster and stays exact.
  std::string numerics = "exact";
  /// memory; or file: a CPU holds `weight_bytes` of the matrices and reads the rest from the file
  /// at every step.
  std::string mapping = "memory";
  uint64_t weight_bytes = 0;

  /// Of the matrices, what is held in memory.
  uint64_t most_weight_bytes() const { return mapping == "file" ? weight_bytes : UINT64_MAX; }
};

/// A device of a model in stages.
struct StageOptions {
  std::string device;            ///< its name
  std::string kind = "cpu";      ///< cpu, or cuda:N
  std::vector<int32_t> cores{};  ///< empty: all that this process may use
  int32_t threads = 0;           ///< 0: one per physical core of these
  uint64_t memory_bytes = 0;     ///< 0: it shares ServeOptions::memory_bytes
};

struct ServeOptions {
  std::filesystem::path socket;  ///< the broker's; already bound
  std::filesystem::path model;
  DeviceOptions device;
  std::vector<StageOptions> stages;  ///< empty: `device` computes all layers
  bool split = false;                ///< each has a share of every layer in place of some layers
  bool spare_stages = false;         ///< the first alone computes all layers if they fit there
  bool experts_apart = false;        ///< of two: the second computes the experts of all layers
  uint64_t hot_expert_bytes = 0;     ///< of these, those most used, on the first, too
  engine::EngineConfig engine;
  /// auto: the model's own layer for drafting, or else the file next to `model` that is named as
  /// its draft; mtp: that layer; none; or a file, or the name of a model in that folder.
  std::string draft = "auto";
  std::filesystem::path prefix_dir;  ///< for the prefix databases; empty: prefixes are not stored
  uint64_t prefix_store_bytes = 8ull << 30;   ///< of one database
  uint64_t prefix_owner_bytes = 0;            ///< of these, per owner; 0: no separate bound
  uint64_t prefix_pinned_bytes = 2ull << 30;  ///< of these, pinned
  /// Host memory for prefixes in front of the databases, on a device with its own memory; 0: none.
  uint64_t prefix_ram_bytes = 4ull << 30;
  ipc::SamplingSettings sampling;      ///< from the configuration
  std::string tool_form = "template";  ///< see ipc::EngineSettings
  uint64_t memory_bytes = 0;           ///< for all models together; 0: no budget is set
  LogLevel log_level = LogLevel::kInfo;
};

/// The engine's configuration and the other serving options. kInvalidArgument names the setting.
Result<ServeOptions> serve_options(const std::filesystem::path& socket,
                                   const std::filesystem::path& model,
                                   const ipc::ServeSettings& settings);

/// N of "cuda:N", 0 of "auto"; kInvalidArgument for any other name.
Result<int32_t> parse_cuda_device(const std::string& name);
/// exact, fast.
Result<kernels::Numerics> parse_numerics(const std::string& name);
/// memory, file.
Result<void> parse_mapping(const std::string& name);
/// The KV type of that name; kInvalidArgument lists the valid names.
Result<kernels::KvTypes> parse_kv_type(const std::string& name);
Result<engine::SchedulerPolicy> parse_policy(const std::string& name);
/// off, shared, all.
Result<engine::PublishedScopes> parse_published(const std::string& name);
/// The draft model, or the heads, chosen by a setting.
struct DraftChoice {
  std::filesystem::path path;  ///< empty: none
  bool found_by_name = false;  ///< not requested explicitly, so it must pay off
  bool heads = false;          ///< the file has heads (models/gguf/heads_keys.h)
};
/// `auto` means the first of MODEL-dflash.gguf, MODEL-eagle3.gguf, MODEL-medusa.gguf and
/// MODEL-draft.gguf next to MODEL.gguf that exists, split or not. A model is never its own draft.
DraftChoice choose_draft(const std::string& setting, const std::filesystem::path& model);
/// lookup, off.
Result<engine::SpeculationConfig> parse_speculation(const std::string& name);

}  // namespace hearth::worker
