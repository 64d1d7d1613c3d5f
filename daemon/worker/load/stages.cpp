#include "daemon/worker/load/stages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <ranges>
#include <utility>

#include "daemon/worker/load/device.h"
#include "daemon/worker/load/measuring_ops.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"
#include "models/row_pieces.h"

namespace hearth::worker {

using models::LayerRange;

Result<void> use_cores(const std::vector<int32_t>& cores) {
  if (cores.empty()) return {};
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int32_t core : cores) {
    if (core < 0 || core >= CPU_SETSIZE) continue;
    CPU_SET(core, &set);
  }
  if (::sched_setaffinity(0, sizeof set, &set) == 0) return {};
  return Error::unavailable(fmt::format("none of the cores {} can be used: {}",
                                        fmt::join(cores, ", "), std::strerror(errno)),
                            "cores");
}

namespace {

/// On the thread that will call the table.
Result<kernels::OpTable> open_stage(const DeviceOptions& of_all, const StageOptions& stage) {
  HEARTH_TRY(use_cores(stage.cores));
  DeviceOptions device = of_all;
  device.device = stage.kind;
  device.threads = stage.threads;
  // Stages are packed at the same time, each by its own threads. The program of a GPU has a CPU,
  // too.
  Result<kernels::OpTable> ops =
      stage.kind == "cpu"
          ? kernels::cpu_ops({.num_threads = device.threads, .variant = device.cpu_variant})
          : open_device(device, kernels::Packing::kAtOnce);
  if (ops.ok()) return ops;
  Error error = ops.take_error();
  error.message = fmt::format("stage {}: {}", stage.device, error.message);
  return error;
}

}  // namespace

Result<std::vector<models::StageTable>> open_stages(const ServeOptions& options) {
  std::vector<models::StageTable> tables;
  for (const StageOptions& stage : options.stages) {
    if (tables.empty() || options.experts_apart) {
      HEARTH_ASSIGN_OR_RETURN(kernels::OpTable ops, open_stage(options.device, stage));
      tables.push_back({stage.device, std::move(ops), nullptr});
      continue;
    }
    auto thread = std::make_shared<kernels::OpThread>();
    Result<kernels::OpTable> ops = Error::internal("not opened");
    thread->run([&] { ops = open_stage(options.device, stage); });
    if (!ops.ok()) return ops.take_error();
    tables.push_back({stage.device, std::move(ops).value(), std::move(thread)});
  }
  return tables;
}

// ---- Which layers ------------------------------------------------------------------------------

namespace {

/// How many of the layers, from the first on, fit on a device.
int32_t num_that_fit(auto layer_bytes, const StageRoom& room) {
  uint64_t bytes = room.fixed_bytes;
  int32_t count = 0;
  for (const uint64_t layer : layer_bytes) {
    bytes += layer;
    if (bytes > room.memory_bytes) break;
    ++count;
  }
  return count;
}

/// The layers of each stage: GPUs before and after all CPUs get what fits, the others shares in
/// proportion to their threads. At least one each.
std::vector<int32_t> counts_wanted(std::span<const uint64_t> layers,
                                   std::span<const StageRoom> rooms) {
  std::vector<int32_t> counts(rooms.size(), 0);
  const auto is_cpu = [](const StageRoom& room) { return !room.own_memory; };
  size_t first = 0, end = rooms.size();
  if (std::ranges::any_of(rooms, is_cpu)) {
    const auto most = [&] { return size32(layers) - narrow<int32_t>(end - first) + 1; };
    for (; !is_cpu(rooms[first]); ++first) {
      counts[first] = std::clamp(num_that_fit(layers, rooms[first]), 1, most());
      layers = layers.subspan(counts[first]);
    }
    for (; !is_cpu(rooms[end - 1]); --end) {
      const int32_t fit = num_that_fit(layers | std::views::reverse, rooms[end - 1]);
      counts[end - 1] = std::clamp(fit, 1, most());
      layers = layers.first(layers.size() - counts[end - 1]);
    }
  }
  int64_t all = 0, before = 0;
  for (size_t i = first; i < end; ++i) all += rooms[i].threads;
  const int32_t num_layers = size32(layers);
  int32_t begin = 0;
  for (size_t i = first; i < end; ++i) {
    before += rooms[i].threads;
    const auto to = narrow<int32_t>((num_layers * before + all / 2) / all);
    counts[i] = std::clamp(to, begin + 1, num_layers - narrow<int32_t>(end - 1 - i)) - begin;
    begin += counts[i];
  }
  return counts;
}

std::string bound_text(const StageRoom& room) {
  if (room.memory_bytes == 0) return "memory_bytes is not set";
  return fmt::format("{} {}", room.bound_is_free ? "free are" : "memory_bytes is",
                     room.memory_bytes);
}

}  // namespace

Result<std::vector<LayerRange>> divide_layers(std::span<const uint64_t> layer_bytes,
                                              std::span<const StageRoom> rooms) {
  const int32_t num_layers = size32(layer_bytes), last = size32(rooms) - 1;
  if (last >= num_layers) {
    return Error::invalid(
        fmt::format("stages: {} devices, the model has {} layers", rooms.size(), num_layers),
        "stages");
  }
  std::vector<int32_t> ends = counts_wanted(layer_bytes, rooms);
  std::partial_sum(ends.begin(), ends.end(), ends.begin());
  const auto begin_of = [&](int32_t i) { return i == 0 ? 0 : ends[i - 1]; };
  const auto bytes_of = [&](int32_t i) {
    return std::accumulate(layer_bytes.begin() + begin_of(i), layer_bytes.begin() + ends[i],
                           rooms[i].fixed_bytes);
  };
  const auto fits = [&](int32_t i) {
    return rooms[i].memory_bytes == 0 || bytes_of(i) <= rooms[i].memory_bytes;
  };
  for (int32_t i = 0; i < last; ++i) {
    ends[i] = std::max(ends[i], begin_of(i) + 1);
    while (!fits(i) && ends[i] > begin_of(i) + 1) --ends[i];
  }
  for (int32_t i = last; i > 0; --i) {
    while (!fits(i) && ends[i - 1] < ends[i] - 1) ++ends[i - 1];
  }
  std::vector<LayerRange> out;
  std::string met;
  uint64_t missing = 0;
  for (int32_t i = 0; i <= last; ++i) {
    out.push_back({begin_of(i), ends[i]});
    if (!fits(i)) missing += bytes_of(i) - rooms[i].memory_bytes;
    met += fmt::format("; {}: layers {} to {} take {} bytes, {}", rooms[i].device, begin_of(i),
                       ends[i] - 1, bytes_of(i), bound_text(rooms[i]));
  }
  if (missing == 0) return out;
  return Error::out_of_memory(
      fmt::format("stages: the layers do not fit{}; {} bytes more would do", met, missing),
      "stages");
}

// ---- What they take ----------------------------------------------------------------------------

namespace {

/// A part of the model, as the device packs it.
Result<std::unique_ptr<models::Model>> measure(const models::GgufFile& file,
                                               const models::LoadOptions& part, bool own_memory,
                                               PackingMeter* packing) {
  kernels::OpTable ops = measuring_ops();
  if (own_memory) {
    ops = measuring_ops([packing](auto tensors, auto role) { return packing->add(tensors, role); });
  }
  return models::load_model(file, ops, nullptr, part);
}

/// KV bytes of the stage's layers, or of a share's heads.
uint64_t kv_of(const models::StageInfo& stage, const models::ModelInfo& info,
               const engine::MemoryPlan& memory) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < memory.groups.size(); ++i) {
    const engine::GroupPlan& group = memory.groups[i];
    bytes += group.num_blocks * stage.block_bytes(info.groups[i], i, group.block_bytes);
  }
  return bytes;
}

/// What a stage takes next to weights and KV: on its own device, of this a part in addition to
/// MemoryPlan.
struct StageBytes {
  uint64_t activations = 0;
  uint64_t extra = 0;
};

std::vector<models::PoolSize> pool_sizes(const engine::MemoryPlan& memory) {
  std::vector<models::PoolSize> sizes;
  for (const engine::GroupPlan& group : memory.groups) {
    sizes.push_back({{}, group.num_blocks, group.max_blocks});
  }
  return sizes;
}

/// The stages' uses with this plan. The engine's own buffers are with the first CPU.
void set_uses(std::span<const StageBytes> taken, std::span<const StageRoom> rooms,
              StagedPlan* plan) {
  plan->host_bytes = plan->memory.total_bytes() - plan->memory.kv_bytes;
  ipc::StageUse* host = nullptr;
  plan->uses.assign(rooms.size(), {});
  for (size_t i = 0; i < rooms.size(); ++i) {
    const models::StageInfo& stage = plan->info.stages[i];
    ipc::StageUse& use = plan->uses[i];
    use = {.device = rooms[i].device,
           .first_layer = stage.layers.first,
           .end_layer = stage.layers.end,
           .weight_bytes = stage.weight_bytes,
           .kv_bytes = kv_of(stage, plan->info, plan->memory),
           .other_bytes = taken[i].activations + taken[i].extra,
           .budget_bytes = rooms[i].memory_bytes,
           .share = plan->split};
    plan->host_bytes -= taken[i].activations;
    const engine::MemoryPlan& memory = plan->memory;
    if (rooms[i].own_memory && plan->split) {
      use.other_bytes += models::split_buffer_bytes(plan->info, pool_sizes(memory),
                                                    memory.max_step_tokens, memory.max_outputs);
    } else if (rooms[i].own_memory) {
      use.other_bytes +=
          models::stage_buffer_bytes(pool_sizes(memory), memory.max_step_tokens, memory.max_outputs,
                                     plan->info.vocab_size, i + 1 == rooms.size());
    } else if (host == nullptr) {
      host = &use;
    }
  }
  if (host != nullptr) host->other_bytes += std::exchange(plan->host_bytes, 0);
}

/// The share of the planned KV that fits everywhere, at most 1; negative: the rest alone does not
/// fit.
double kv_share(std::span<const ipc::StageUse> uses, uint64_t memory_bytes) {
  double share = 1;
  ipc::StageUse all;
  const auto bound = [&share](const ipc::StageUse& use) {
    if (use.budget_bytes == 0) return;
    const double left = as_double(use.budget_bytes) - as_double(use.weight_bytes + use.other_bytes);
    share = std::min(share, left / as_double(std::max<uint64_t>(use.kv_bytes, 1)));
  };
  for (const ipc::StageUse& use : uses) {
    bound(use);
    all.weight_bytes += use.weight_bytes;
    all.other_bytes += use.other_bytes;
    all.kv_bytes += use.kv_bytes;
  }
  all.budget_bytes = memory_bytes;
  bound(all);
  return share;
}

/// `fitting_bytes`: of KV; 0: none fits.
Error no_room(const StagedPlan& plan, std::span<const StageRoom> rooms, uint64_t fitting_bytes) {
  std::string met;
  for (size_t i = 0; i < rooms.size(); ++i) {
    const ipc::StageUse& use = plan.uses[i];
    met += fmt::format("; {}: {}layers {} to {}, weights {}, KV {}, activations {}, {}", use.device,
                       use.share ? "a share of " : "", use.first_layer, use.end_layer - 1,
                       use.weight_bytes, use.kv_bytes, use.other_bytes, bound_text(rooms[i]));
  }
  if (fitting_bytes > 0) met += fmt::format("; kv_bytes = {} would", fitting_bytes);
  if (plan.split) return Error::out_of_memory("split: the model does not fit" + met, "split");
  return Error::out_of_memory("stages: the KV does not fit" + met, "kv_bytes");
}

/// The weights of each layer, as the device packs them that takes most.
Result<std::vector<uint64_t>> weights_of_layers(const models::GgufFile& file, int32_t num_layers,
                                                std::span<const StageRoom> rooms) {
  std::vector<uint64_t> out(num_layers, 0);
  for (const bool own : {false, true}) {
    if (std::ranges::none_of(rooms, [own](const auto& room) { return room.own_memory == own; })) {
      continue;
    }
    for (int32_t i = 0; i < num_layers; ++i) {
      PackingMeter packing;
      HEARTH_ASSIGN_OR_RETURN(const auto layer,
                              measure(file, {.layers = {i, i + 1}}, own, &packing));
      out[i] = std::max(out[i], layer->info().weight_bytes);
    }
  }
  return out;
}

/// KV that counts when layers are divided. GPUs that are filled leave a quarter to KV, if it is not
/// configured.
uint64_t kv_to_divide(std::span<const StageRoom> rooms, const engine::EngineConfig& engine,
                      const engine::MemoryPlan& memory) {
  uint64_t own_bytes = 0;
  bool any_own = false;
  for (const StageRoom& room : rooms) {
    if (!room.own_memory) continue;
    any_own = true;
    own_bytes += room.memory_bytes - std::min(room.memory_bytes, room.fixed_bytes);
  }
  if (!any_own) return engine.kv_floor_bytes;
  if (engine.kv_bytes > 0) return engine.kv_bytes;
  return std::max(engine.kv_floor_bytes, std::min(memory.kv_bytes, own_bytes / 4));
}

/// Where layers do not fit with that KV, by their weights: fit_kv finds how much KV there is room
/// for.
Result<std::vector<LayerRange>> divide_by_bytes(const std::vector<uint64_t>& weights,
                                                uint64_t kv_bytes, bool kv_given,
                                                std::span<const StageRoom> rooms) {
  std::vector<uint64_t> all = weights;
  for (uint64_t& bytes : all) bytes += kv_bytes / weights.size();
  Result<std::vector<LayerRange>> layers = divide_layers(all, rooms);
  const bool again = !kv_given && !layers.ok() && layers.error().code == ErrorCode::kOutOfMemory;
  return again ? divide_layers(weights, rooms) : std::move(layers);
}

/// What a part of the model takes next to weights and KV.
StageBytes other_bytes(const models::Model& part, int32_t rows, int32_t outputs,
                       const StageRoom& room, const PackingMeter& packing) {
  return {part.activation_bytes(rows, outputs),
          room.own_memory ? reserved_bytes().value_or(0) + packing.extra_bytes() : 0};
}

models::StageTable measuring_table(const StageRoom& room) {
  return {room.device, room.own_memory ? measuring_ops(packed_bytes) : measuring_ops(), nullptr};
}

/// Completes a plan: its memory, with as much KV as the budgets permit.
Result<StagedPlan> fit_kv(const models::Model& model, std::span<const StageBytes> taken,
                          std::span<const StageRoom> devices, uint64_t memory_bytes,
                          uint64_t free_bytes, StagedPlan plan) {
  plan.info = model.info();
  const bool given = plan.engine.kv_bytes > 0;
  HEARTH_ASSIGN_OR_RETURN(plan.memory, engine::plan_memory(plan.engine, model, free_bytes));
  set_uses(taken, devices, &plan);
  const double share = kv_share(plan.uses, memory_bytes);
  if (share >= 1) return plan;
  const auto fitting_bytes =
      static_cast<uint64_t>(std::max(0.0, share) * as_double(plan.memory.kv_bytes));
  if (fitting_bytes == 0 || given) return no_room(plan, devices, fitting_bytes);
  plan.engine.kv_bytes = fitting_bytes;
  HEARTH_ASSIGN_OR_RETURN(plan.memory, engine::plan_memory(plan.engine, model, 0));
  set_uses(taken, devices, &plan);
  if (kv_share(plan.uses, memory_bytes) < 1) return no_room(plan, devices, 0);
  return plan;
}

}  // namespace

Result<StagedPlan> plan_split(const models::GgufFile& file, std::span<const StageRoom> devices,
                              const engine::EngineConfig& engine, uint64_t memory_bytes,
                              uint64_t free_bytes) {
  std::vector<models::StageTable> tables;
  for (const StageRoom& room : devices) tables.push_back(measuring_table(room));
  HEARTH_ASSIGN_OR_RETURN(const auto model,
                          models::load_split_model(file, std::move(tables), nullptr));
  StagedPlan plan;
  plan.split = true;
  plan.engine = engine;
  HEARTH_ASSIGN_OR_RETURN(plan.memory, engine::plan_memory(engine, *model, free_bytes));
  std::vector<StageBytes> taken;
  for (size_t i = 0; i < devices.size(); ++i) {
    PackingMeter packing;
    const models::Share share{narrow<int32_t>(i), size32(devices)};
    HEARTH_ASSIGN_OR_RETURN(const auto part,
                            measure(file, {.share = share}, devices[i].own_memory, &packing));
    taken.push_back(other_bytes(*part, plan.memory.max_step_tokens, plan.memory.max_outputs,
                                devices[i], packing));
  }
  return fit_kv(*model, taken, devices, memory_bytes, free_bytes, std::move(plan));
}

Result<StagedPlan> plan_stages(const models::GgufFile& file, std::span<const StageRoom> devices,
                               const engine::EngineConfig& engine, uint64_t memory_bytes,
                               uint64_t free_bytes) {
  PackingMeter ignored, whole;
  HEARTH_ASSIGN_OR_RETURN(const auto first, measure(file, {.layers = {0, 1}}, false, &ignored));
  const models::ModelInfo& info = first->info();
  if (info.stages.empty()) {
    return Error::unsupported(
        fmt::format("architecture {}: not computed in stages", info.architecture), "stages");
  }
  StagedPlan plan;
  plan.engine = engine;
  HEARTH_ASSIGN_OR_RETURN(plan.memory, engine::plan_memory(engine, *first, free_bytes));
  const int32_t rows =
      models::most_piece_rows(plan.memory.max_step_tokens, plan.memory.max_outputs);
  HEARTH_TRY(measure(file, {}, true, &whole));  // for its upper bounds alone
  std::vector<StageRoom> rooms(devices.begin(), devices.end());
  for (StageRoom& room : rooms) {
    room.fixed_bytes = first->activation_bytes(rows, plan.memory.max_outputs);
    if (!room.own_memory) continue;
    room.fixed_bytes +=
        reserved_bytes().value_or(0) + whole.extra_bytes() +
        models::stage_buffer_bytes(pool_sizes(plan.memory), plan.memory.max_step_tokens,
                                   plan.memory.max_outputs, info.vocab_size, true);
  }
  HEARTH_ASSIGN_OR_RETURN(const std::vector<uint64_t> weights,
                          weights_of_layers(file, info.num_layers, rooms));
  const uint64_t kv_bytes = kv_to_divide(rooms, engine, plan.memory);
  HEARTH_ASSIGN_OR_RETURN(plan.layers,
                          divide_by_bytes(weights, kv_bytes, engine.kv_bytes > 0, rooms));
  std::vector<models::Stage> stages;
  std::vector<StageBytes> taken;
  for (size_t i = 0; i < rooms.size(); ++i) {
    PackingMeter packing;
    HEARTH_ASSIGN_OR_RETURN(
        const auto stage, measure(file, {.layers = plan.layers[i]}, rooms[i].own_memory, &packing));
    taken.push_back(other_bytes(*stage, rows, plan.memory.max_outputs, rooms[i], packing));
    stages.push_back({measuring_table(rooms[i]), plan.layers[i]});
  }
  HEARTH_ASSIGN_OR_RETURN(const auto model,
                          models::load_staged_model(file, std::move(stages), nullptr));
  return fit_kv(*model, taken, devices, memory_bytes, free_bytes, std::move(plan));
}

}  // namespace hearth::worker
