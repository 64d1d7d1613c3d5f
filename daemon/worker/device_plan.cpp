#include "daemon/worker/device_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace hearth::worker {
namespace {

Error refusal(const DeviceRoom& room, uint64_t engine_bytes, uint64_t kv_bytes) {
  return {ErrorCode::kOutOfMemory,
          fmt::format("the device has {} bytes free, want {}: weights {}, KV blocks {}, "
                      "activations, logits and index {}, driver and scratch {}",
                      room.free_bytes, room.weight_bytes + engine_bytes + room.reserved_bytes,
                      room.weight_bytes, kv_bytes, engine_bytes - kv_bytes, room.reserved_bytes),
          "kv_bytes"};
}

}  // namespace

Result<engine::EngineConfig> fit_to_device(const engine::EngineConfig& config,
                                           const models::Model& model, const DeviceRoom& room) {
  engine::EngineConfig out = config;
  const uint64_t fixed = room.weight_bytes + room.reserved_bytes;
  if (config.kv_bytes == 0) {
    // plan_memory takes a quarter of the free bytes at most, unless that is less than one full
    // context: asked with all the bytes there could be, it says what would be useful.
    constexpr uint64_t kPlenty = std::numeric_limits<int64_t>::max() / 4;
    HEARTH_ASSIGN_OR_RETURN(const engine::MemoryPlan useful,
                            engine::plan_memory(config, model, kPlenty));
    const uint64_t others = fixed + useful.total_bytes() - useful.kv_bytes;
    if (others >= room.free_bytes) return refusal(room, useful.total_bytes() - useful.kv_bytes, 0);
    out.kv_bytes = std::min(useful.kv_bytes, room.free_bytes - others);
  }
  HEARTH_ASSIGN_OR_RETURN(const engine::MemoryPlan plan, engine::plan_memory(out, model, 0));
  if (fixed + plan.total_bytes() > room.free_bytes) {
    return refusal(room, plan.total_bytes(), plan.kv_bytes);
  }
  return out;
}

}  // namespace hearth::worker
