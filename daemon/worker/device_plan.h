#pragma once
// What fits into a device with memory of its own, decided before anything is taken: pools sized
// against what is free now, or a refusal with the numbers. Pure arithmetic.

#include <cstdint>

#include "engine/memory_plan.h"
#include "kernels/base/result.h"

namespace hearth::worker {

struct DeviceRoom {
  uint64_t free_bytes = 0;      ///< on the device now
  uint64_t reserved_bytes = 0;  ///< of them left to the driver and the ops' scratch
  uint64_t weight_bytes = 0;    ///< packed, as the device takes them
};

/// `config` with its kv_bytes settled. One that asks for a number of bytes gets it or nothing;
/// kv_bytes 0 means as much as is useful (half of what every sequence could use) and fits beside
/// the rest. Errors: plan_memory's, and kOutOfMemory with each part where one KV block per layer
/// group does not fit.
Result<engine::EngineConfig> fit_to_device(const engine::EngineConfig& config,
                                           const models::Model& model, const DeviceRoom& room);

}  // namespace hearth::worker
