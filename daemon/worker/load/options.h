#pragma once
// What `hearth-worker-<device> serve` was told: the model, the socket, the engine's settings.

#include <filesystem>
#include <string>

#include "engine/engine.h"
#include "ipc/schema/sampling.h"
#include "ipc/schema/serve_settings.h"
#include "kernels/base/log.h"
#include "kernels/base/result.h"

namespace hearth::worker {

struct DeviceOptions {
  /// "auto": the first device of the kind this program computes on; "cpu", or "cuda:N" by CUDA's
  /// ordinal after CUDA_VISIBLE_DEVICES.
  std::string device = "auto";
  int32_t threads = 0;      ///< 0: one per physical core
  std::string cpu_variant;  ///< "": best this CPU has
  /// exact, or fast: on a GPU many rows by cuBLASLt; a CPU knows nothing faster and stays exact.
  std::string numerics = "exact";
};

struct ServeOptions {
  std::filesystem::path socket;  ///< the broker's, already bound
  std::filesystem::path model;
  DeviceOptions device;
  engine::EngineConfig engine;
  /// auto: the file beside `model` that is named as its draft; none; or a file, or the name of a
  /// model in that folder.
  std::string draft = "auto";
  std::filesystem::path prefix_dir;          ///< of the databases of prefixes; empty: none are kept
  uint64_t prefix_store_bytes = 8ull << 30;  ///< of one database
  uint64_t prefix_owner_bytes = 0;           ///< of it one owner's; 0: as much as there is
  uint64_t prefix_pinned_bytes = 2ull << 30;  ///< and of that pinned
  /// Of host memory in front of them, on a device with memory of its own; 0: none.
  uint64_t prefix_ram_bytes = 4ull << 30;
  ipc::SamplingSettings sampling;  ///< of the configuration
  LogLevel log_level = LogLevel::kInfo;
};

/// The engine's configuration and what else serving needs. kInvalidArgument names the setting.
Result<ServeOptions> serve_options(const std::filesystem::path& socket,
                                   const std::filesystem::path& model,
                                   const ipc::ServeSettings& settings);

/// N of "cuda:N", 0 of "auto"; kInvalidArgument for any other name.
Result<int32_t> parse_cuda_device(const std::string& name);
/// exact, fast.
Result<kernels::Numerics> parse_numerics(const std::string& name);
/// The KV type of that name; kInvalidArgument lists those there are.
Result<kernels::DType> parse_kv_type(const std::string& name);
Result<engine::SchedulerPolicy> parse_policy(const std::string& name);
/// The draft model that a setting means.
struct DraftChoice {
  std::filesystem::path path;  ///< empty: none
  bool found_by_name = false;  ///< nobody asked for it: it must pay
};
/// `auto` means MODEL-draft.gguf beside MODEL.gguf, if there is such a file. A model is no draft
/// for itself.
DraftChoice choose_draft(const std::string& setting, const std::filesystem::path& model);
/// lookup, off.
Result<engine::SpeculationConfig> parse_speculation(const std::string& name);

}  // namespace hearth::worker
