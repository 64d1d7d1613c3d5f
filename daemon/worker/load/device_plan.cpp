#include "daemon/worker/load/device_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <string>

#include "kernels/base/numbers.h"
#include "kernels/ops/elastic_memory.h"

namespace hearth::worker {
namespace {

/// More than any device has, so that plan_memory returns the useful maximum.
constexpr uint64_t kPlenty = std::numeric_limits<int64_t>::max() / 4;
/// With less than this free, the device counts as full.
constexpr uint64_t kFullBytes = uint64_t{16} << 20;

/// The longest context of which one sequence fits into `kv_bytes`; 0: none.
int32_t context_within(const engine::EngineConfig& config, const models::Model& model,
                       uint64_t kv_bytes) {
  int64_t fits = 0, too_long = int64_t{model.info().context_length} + 1;
  while (too_long - fits > 1) {
    engine::EngineConfig one = config;
    one.context_length = narrow<int32_t>((fits + too_long) / 2);
    one.kv_bytes = 0;
    one.scheduler.max_seqs = 2;  // plan_memory takes half of what two use
    const auto plan = engine::plan_memory(one, model, kPlenty);
    (plan.ok() && plan->kv_bytes <= kv_bytes ? fits : too_long) = one.context_length;
  }
  return narrow<int32_t>(fits);
}

/// `other_bytes`: activations, logits and index.
Error refusal(const engine::EngineConfig& config, const models::Model& model,
              const DeviceRoom& room, uint64_t other_bytes, uint64_t kv_bytes) {
  const uint64_t fixed = room.fixed_bytes() + other_bytes;
  std::string would = "nothing would, however small: the rest alone does not";
  if (fixed < room.free_bytes) {
    const uint64_t left = room.free_bytes - fixed;
    would = fmt::format("kv_bytes = {} would, for a context of {} tokens", left,
                        context_within(config, model, left));
  }
  std::string draft;
  if (room.draft_bytes > 0) draft = fmt::format(", the draft model {}", room.draft_bytes);
  return Error::out_of_memory(
      fmt::format("the device has {} bytes free, want {}: weights {}, KV blocks {}, "
                  "activations, logits and index {}, scratch {}{}, reserved for driver and "
                  "graphs {}; {}",
                  room.free_bytes, fixed + kv_bytes, room.weight_bytes, kv_bytes, other_bytes,
                  room.scratch_bytes, draft, room.reserved_bytes, would),
      "kv_bytes");
}

}  // namespace

size_t elastic_granule(const kernels::OpTable& ops) {
  return ops.elastic == nullptr ? 0 : ops.elastic->granule;
}

Result<engine::EngineConfig> fit_to_device(const engine::EngineConfig& config,
                                           const models::Model& model, const DeviceRoom& room) {
  engine::EngineConfig out = config;
  const uint64_t fixed = room.fixed_bytes();
  if (config.kv_bytes == 0) {
    // plan_memory takes at most a quarter of the free bytes, unless that is less than one full
    // context. Given unlimited bytes, it returns the useful maximum.
    HEARTH_ASSIGN_OR_RETURN(const engine::MemoryPlan useful,
                            engine::plan_memory(config, model, kPlenty));
    const uint64_t others = useful.total_bytes() - useful.kv_bytes;
    if (fixed + others >= room.free_bytes) return refusal(config, model, room, others, 0);
    out.kv_bytes = std::min(useful.kv_bytes, room.free_bytes - fixed - others);
  }
  HEARTH_ASSIGN_OR_RETURN(const engine::MemoryPlan plan, engine::plan_memory(out, model, 0));
  if (fixed + plan.total_bytes() > room.free_bytes) {
    return refusal(config, model, room, plan.total_bytes() - plan.kv_bytes, plan.kv_bytes);
  }
  return out;
}

uint64_t DeviceBill::taken_bytes() const {
  const uint64_t left = free_after_bytes + planned_bytes;
  return free_before_bytes > left ? free_before_bytes - left : 0;
}

Result<void> check_reserve(const DeviceBill& bill) {
  const uint64_t taken = bill.taken_bytes();
  if (taken <= bill.reserved_bytes && bill.graphs_refused == 0) return {};
  if (bill.free_after_bytes >= kFullBytes && bill.graphs_refused == 0) return {};
  return Error::out_of_memory(
      fmt::format(
          "the device is full: {} bytes were taken in addition to the plan, {} of them by captured "
          "steps ({} more found no room), where {} were reserved, and {} are left; set "
          "worker.kv_bytes, to at least {} less than it has, or max_seqs",
          taken, bill.graph_bytes, bill.graphs_refused, bill.reserved_bytes, bill.free_after_bytes,
          std::max(taken, bill.reserved_bytes) - bill.reserved_bytes + kFullBytes),
      "kv_bytes");
}

}  // namespace hearth::worker
