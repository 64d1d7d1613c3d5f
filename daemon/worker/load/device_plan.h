#pragma once
// What fits into a device with memory of its own, decided before anything is taken: pools sized
// against what is free now, or a refusal with the numbers; and, once it is taken, whether what
// could not be known ahead stayed within what was set aside for it. Pure arithmetic.

#include <cstdint>

#include "engine/kv/memory_plan.h"
#include "kernels/base/result.h"

namespace hearth::worker {

struct DeviceRoom {
  uint64_t free_bytes = 0;      ///< on the device now
  uint64_t reserved_bytes = 0;  ///< of them left to the driver and to captured steps
  uint64_t weight_bytes = 0;    ///< packed, as the device takes them
  uint64_t scratch_bytes = 0;   ///< of the ops, and pages that are not full
  uint64_t draft_bytes = 0;     ///< a draft model and all that is its own
  uint64_t fixed_bytes() const {
    return reserved_bytes + weight_bytes + scratch_bytes + draft_bytes;
  }
};

/// `config` with its kv_bytes settled. One that asks for a number of bytes gets it or nothing;
/// kv_bytes 0 means as much as is useful (a few full contexts, as plan_memory says) and fits beside
/// the rest. Errors: plan_memory's, and kOutOfMemory with each part where one KV block per layer
/// group does not fit, and with the KV and the context that would.
Result<engine::EngineConfig> fit_to_device(const engine::EngineConfig& config,
                                           const models::Model& model, const DeviceRoom& room);

/// What of the device's memory went where, when all is loaded and captured.
struct DeviceBill {
  uint64_t free_before_bytes = 0;  ///< when it was planned
  uint64_t planned_bytes = 0;      ///< all of the plan but what was reserved
  uint64_t reserved_bytes = 0;
  uint64_t free_after_bytes = 0;
  uint64_t graph_bytes = 0;    ///< that captured steps took
  int32_t graphs_refused = 0;  ///< for want of memory
  /// That went without being planned: captured steps, the driver, and whoever else uses the device.
  uint64_t taken_bytes() const;
};
/// Where more was taken than was reserved, the plan had room to spare and nothing is lost, or the
/// device is full, and any call of the driver may be the one that fails: kOutOfMemory, with the
/// numbers, before the first request. What is still free tells the two apart.
Result<void> check_reserve(const DeviceBill& bill);

}  // namespace hearth::worker
