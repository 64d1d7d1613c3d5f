#pragma once
// Decides what fits into a device with its own memory before any is taken: sizes the pools for the
// memory free now, or refuses with the numbers. After loading, checks that the memory not known in
// advance stayed within its reserve. Pure arithmetic.

#include <cstdint>

#include "engine/kv/memory_plan.h"
#include "kernels/base/result.h"

namespace hearth::worker {

/// For MemoryPlan::set_extents: of the device's memory that is backed in parts; 0: it has none.
size_t elastic_granule(const kernels::OpTable& ops);

struct DeviceRoom {
  uint64_t free_bytes = 0;      ///< on the device now
  uint64_t reserved_bytes = 0;  ///< of these, left to the driver and to captured steps
  uint64_t weight_bytes = 0;    ///< packed for the device
  uint64_t scratch_bytes = 0;   ///< of the ops, and partly filled pages
  uint64_t draft_bytes = 0;     ///< a draft model with everything it needs
  uint64_t fixed_bytes() const {
    return reserved_bytes + weight_bytes + scratch_bytes + draft_bytes;
  }
};

/// `config` with its kv_bytes determined. A configured size is used as it is or refused. kv_bytes 0
/// means as much as is useful (a few full contexts, as in plan_memory) and fits next to the rest.
/// Errors: those of plan_memory, and kOutOfMemory if one KV block per layer group does not fit,
/// listing each part and the KV size and context that would fit.
Result<engine::EngineConfig> fit_to_device(const engine::EngineConfig& config,
                                           const models::Model& model, const DeviceRoom& room);

/// Use of the device's memory after loading and capturing.
struct DeviceBill {
  uint64_t free_before_bytes = 0;  ///< at planning
  uint64_t planned_bytes = 0;      ///< the whole plan except the reserve
  uint64_t reserved_bytes = 0;
  uint64_t free_after_bytes = 0;
  uint64_t graph_bytes = 0;    ///< taken by captured steps
  int32_t graphs_refused = 0;  ///< for lack of memory
  /// Memory taken outside the plan: by captured steps, the driver, and other processes on the
  /// device.
  uint64_t taken_bytes() const;
};
/// If more was taken than reserved, either the plan left room and nothing is lost, or the device is
/// full and any driver call may fail. The memory still free distinguishes the two; the second is
/// kOutOfMemory, with the numbers, before the first request.
Result<void> check_reserve(const DeviceBill& bill);

}  // namespace hearth::worker
