#include "daemon/worker/load/stages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
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
  device.threads = stage.threads;
  // Stages are packed at the same time, each by its own threads.
  Result<kernels::OpTable> ops = open_device(device, kernels::Packing::kAtOnce);
  if (ops.ok()) return ops;
  Error error = ops.take_error();
  error.message = fmt::format("stage {}: {}", stage.device, error.message);
  return error;
}

}  // namespace

Result<std::vector<models::StageTable>> open_stages(const ServeOptions& options) {
  std::vector<models::StageTable> tables;
  for (const StageOptions& stage : options.stages) {
    if (tables.empty()) {
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

/// The end of each stage's layers: in proportion to threads, at least one.
std::vector<int32_t> ends_by_threads(int32_t num_layers, std::span<const StageRoom> rooms) {
  int64_t all = 0, before = 0;
  for (const StageRoom& room : rooms) all += room.threads;
  std::vector<int32_t> ends;
  const int32_t count = size32(rooms);
  for (int32_t i = 0; i < count; ++i) {
    before += rooms[i].threads;
    const auto end = narrow<int32_t>((num_layers * before + all / 2) / all);
    ends.push_back(std::clamp(end, (i == 0 ? 0 : ends.back()) + 1, num_layers - (count - 1 - i)));
  }
  return ends;
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
  std::vector<int32_t> ends = ends_by_threads(num_layers, rooms);
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
  bool all_fit = true;
  for (int32_t i = 0; i <= last; ++i) {
    out.push_back({begin_of(i), ends[i]});
    all_fit = all_fit && fits(i);
    const std::string bound =
        rooms[i].memory_bytes == 0 ? "no bound" : fmt::format("{}", rooms[i].memory_bytes);
    met += fmt::format("; {}: layers {} to {} take {} bytes, memory_bytes is {}", rooms[i].device,
                       begin_of(i), ends[i] - 1, bytes_of(i), bound);
  }
  if (all_fit) return out;
  return Error::out_of_memory("stages: the layers do not fit" + met, "stages");
}

// ---- What they take ----------------------------------------------------------------------------

namespace {

Result<std::unique_ptr<models::Model>> measure(const models::GgufFile& file,
                                               const LayerRange& layers) {
  return models::load_model(file, measuring_ops(), nullptr, {.layers = layers});
}

/// KV bytes of the stage's layers.
uint64_t kv_of(const models::StageInfo& stage, const models::ModelInfo& info,
               const engine::MemoryPlan& memory) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < memory.groups.size(); ++i) {
    const int32_t layers = info.groups[i].num_layers;
    const uint64_t all =
        narrow<uint64_t>(memory.groups[i].num_blocks * memory.groups[i].block_bytes);
    if (layers > 0) bytes += all / layers * stage.group_layers[i];
  }
  return bytes;
}

/// The stages' uses with this plan. `activation_bytes`: of each.
std::vector<ipc::StageUse> uses_of(const models::ModelInfo& info, const engine::MemoryPlan& memory,
                                   std::span<const uint64_t> activation_bytes,
                                   std::span<const StageRoom> devices) {
  uint64_t rest = memory.total_bytes() - memory.kv_bytes;
  std::vector<ipc::StageUse> uses;
  for (size_t i = 0; i < devices.size(); ++i) {
    const models::StageInfo& stage = info.stages[i];
    uses.push_back({.device = devices[i].device,
                    .first_layer = stage.layers.first,
                    .end_layer = stage.layers.end,
                    .weight_bytes = stage.weight_bytes,
                    .kv_bytes = kv_of(stage, info, memory),
                    .other_bytes = activation_bytes[i],
                    .budget_bytes = devices[i].memory_bytes});
    rest -= activation_bytes[i];
  }
  uses.front().other_bytes += rest;
  return uses;
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

Error no_room(std::span<const ipc::StageUse> uses) {
  std::string met;
  for (const ipc::StageUse& use : uses) {
    met += fmt::format(
        "; {}: layers {} to {}, weights {}, KV {}, activations {}, memory_bytes is {}", use.device,
        use.first_layer, use.end_layer - 1, use.weight_bytes, use.kv_bytes, use.other_bytes,
        use.budget_bytes == 0 ? "not set" : fmt::format("{}", use.budget_bytes));
  }
  return Error::out_of_memory("stages: the KV does not fit" + met, "kv_bytes");
}

}  // namespace

Result<StagedPlan> plan_stages(const models::GgufFile& file, std::span<const StageRoom> devices,
                               const engine::EngineConfig& engine, uint64_t memory_bytes,
                               uint64_t free_bytes) {
  HEARTH_ASSIGN_OR_RETURN(const auto first, measure(file, {0, 1}));
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
  std::vector<StageRoom> rooms(devices.begin(), devices.end());
  for (StageRoom& room : rooms) {
    room.fixed_bytes = first->activation_bytes(rows, plan.memory.max_outputs);
  }
  std::vector<uint64_t> layer_bytes;
  for (int32_t i = 0; i < info.num_layers; ++i) {
    HEARTH_ASSIGN_OR_RETURN(const auto layer, measure(file, {i, i + 1}));
    layer_bytes.push_back(layer->info().weight_bytes + engine.kv_floor_bytes / info.num_layers);
  }
  HEARTH_ASSIGN_OR_RETURN(plan.layers, divide_layers(layer_bytes, rooms));
  std::vector<models::Stage> stages;
  std::vector<uint64_t> activation_bytes;
  for (size_t i = 0; i < rooms.size(); ++i) {
    stages.push_back({{rooms[i].device, measuring_ops(), nullptr}, plan.layers[i]});
    HEARTH_ASSIGN_OR_RETURN(const auto stage, measure(file, plan.layers[i]));
    activation_bytes.push_back(stage->activation_bytes(rows, plan.memory.max_outputs));
  }
  HEARTH_ASSIGN_OR_RETURN(const auto model,
                          models::load_staged_model(file, std::move(stages), nullptr));
  plan.info = model->info();
  HEARTH_ASSIGN_OR_RETURN(plan.memory, engine::plan_memory(plan.engine, *model, free_bytes));
  plan.uses = uses_of(plan.info, plan.memory, activation_bytes, devices);
  const double share = kv_share(plan.uses, memory_bytes);
  if (share >= 1) return plan;
  if (share <= 0 || engine.kv_bytes > 0) return no_room(plan.uses);
  plan.engine.kv_bytes = static_cast<uint64_t>(share * as_double(plan.memory.kv_bytes));
  HEARTH_ASSIGN_OR_RETURN(plan.memory, engine::plan_memory(plan.engine, *model, 0));
  plan.uses = uses_of(plan.info, plan.memory, activation_bytes, devices);
  if (kv_share(plan.uses, memory_bytes) < 1) return no_room(plan.uses);
  return plan;
}

}  // namespace hearth::worker
