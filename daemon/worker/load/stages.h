#pragma once
// A model in stages: opens the table of each device, divides the layers among them, and plans what
// each takes. A model in shares: likewise, with a share of every layer on each.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/kv/memory_plan.h"
#include "ipc/schema/worker_stats.h"
#include "kernels/base/result.h"
#include "models/gguf/gguf_file.h"
#include "models/split_model.h"
#include "models/staged_model.h"

namespace hearth::worker {

struct ServeOptions;

/// Lets the calling thread, and threads that it starts, run on these cores alone. Empty: no change.
Result<void> use_cores(const std::vector<int32_t>& cores);

/// The first table, and that of experts, is for the calling thread, which is confined to its cores;
/// the others have a thread each. Errors as of open_device; they begin with the stage's name.
Result<std::vector<models::StageTable>> open_stages(const ServeOptions& options);

/// A device that layers are put on.
struct StageRoom {
  std::string device;
  int32_t threads = 1;
  uint64_t memory_bytes = 0;   ///< 0: no bound
  uint64_t fixed_bytes = 0;    ///< taken whatever its layers are
  bool own_memory = false;     ///< a GPU; it has memory_bytes
  bool bound_is_free = false;  ///< memory_bytes is what it has free, not configured
};
/// Each device gets layers in proportion to its threads, at least one, and gives those that do not
/// fit to the devices after or before it. GPUs at either end, before or after CPUs, get as many as
/// fit. kOutOfMemory lists what fits; kInvalidArgument: more devices than layers.
Result<std::vector<models::LayerRange>> divide_layers(std::span<const uint64_t> layer_bytes,
                                                      std::span<const StageRoom> rooms);

struct StagedPlan {
  bool split = false;
  std::vector<models::LayerRange> layers;  ///< of each stage
  engine::EngineConfig engine;             ///< with its kv_bytes determined if a budget bounds them
  engine::MemoryPlan memory;
  models::ModelInfo info;
  std::vector<ipc::StageUse> uses;
  uint64_t host_bytes = 0;  ///< of the engine's buffers, if no stage is a CPU
};
/// `memory_bytes`: of all stages together; 0: no bound. `free_bytes`: of all devices together.
/// Without `kv_bytes` the KV is as large as the budgets permit, at most as on one device. Errors:
/// those of load_staged_model, divide_layers and plan_memory; kOutOfMemory names the stage whose KV
/// does not fit.
Result<StagedPlan> plan_stages(const models::GgufFile& file, std::span<const StageRoom> devices,
                               const engine::EngineConfig& engine, uint64_t memory_bytes,
                               uint64_t free_bytes);

/// The same for a model of which each device has a share of every layer; `layers` is empty. Errors:
/// those of load_split_model and plan_memory; kOutOfMemory names what each device would take.
Result<StagedPlan> plan_split(const models::GgufFile& file, std::span<const StageRoom> devices,
                              const engine::EngineConfig& engine, uint64_t memory_bytes,
                              uint64_t free_bytes);

}  // namespace hearth::worker
