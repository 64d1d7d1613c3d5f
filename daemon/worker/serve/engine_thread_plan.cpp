// What a model will take, before any memory is taken: of one device, of stages, or of a device and
// that of its experts.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "daemon/worker/load/device.h"
#include "daemon/worker/load/device_plan.h"
#include "daemon/worker/load/expert_counts.h"
#include "daemon/worker/load/measuring_ops.h"
#include "daemon/worker/load/stages.h"
#include "daemon/worker/serve/engine_thread.h"
#include "engine/kv/memory_plan.h"
#include "engine/speculation/draft_model.h"
#include "ipc/schema/worker_stats.h"
#include "kernels/base/log.h"
#include "models/gguf/gguf_file.h"

namespace hearth::worker {
namespace {

/// Of a LoadPlan or an ipc::StageUse: all that it takes.
uint64_t bytes_of(const auto& plan) { return plan.weight_bytes + plan.kv_bytes + plan.other_bytes; }

}  // namespace

/// A draft model only changes speed, so a model is served without one that cannot be loaded.
void warn_no_draft(const std::filesystem::path& draft, const Error& error) {
  log_warn("no_draft", "draft={} code={} message=\"{}\"", draft.string(), name(error.code),
           error.message);
}

// Of stages that may be spared, the first alone, if all layers fit there.
Result<LoadPlan> EngineThread::plan_stages_or_device(const models::GgufFile& file,
                                                     const models::GgufFile* heads,
                                                     std::filesystem::path* draft,
                                                     const kernels::OpTable& ops) {
  if (expert_ops_) return plan_with_experts(file, heads, draft, ops);
  if (stages_.empty()) return plan(file, heads, draft, ops);
  if (!options_.spare_stages) return plan_in_stages(file, heads != nullptr, draft, ops);
  const StageOptions& first = options_.stages.front();
  const engine::EngineConfig engine = options_.engine;
  const uint64_t all_bytes = std::exchange(
      options_.memory_bytes, first.memory_bytes > 0 ? first.memory_bytes : options_.memory_bytes);
  std::filesystem::path its_draft = *draft;
  Result<LoadPlan> alone = plan(file, heads, &its_draft, ops);
  if (alone.ok() && (options_.memory_bytes == 0 || bytes_of(*alone) <= options_.memory_bytes)) {
    HEARTH_ASSIGN_OR_RETURN(const auto all, models::load_model(file, measuring_ops(), nullptr));
    alone->stages = {{.device = first.device,
                      .end_layer = all->info().num_layers,
                      .weight_bytes = alone->weight_bytes,
                      .kv_bytes = alone->kv_bytes,
                      .other_bytes = alone->other_bytes,
                      .budget_bytes = first.memory_bytes}};
    *draft = std::move(its_draft);
    stages_.clear();
    return alone;
  }
  if (!alone.ok() && alone.error().code != ErrorCode::kOutOfMemory) return alone;
  options_.engine = engine;
  options_.memory_bytes = all_bytes;
  return plan_in_stages(file, heads != nullptr, draft, ops);
}

// By what earlier workers counted. The division among the devices does not change while serving,
// because results may depend on it.
Result<void> EngineThread::choose_hot_experts(const models::GgufFile& file) {
  if (options_.prefix_dir.empty() || options_.hot_expert_bytes == 0) return {};
  const kernels::OpTable measuring = measuring_ops();
  HEARTH_ASSIGN_OR_RETURN(const auto model,
                          models::load_model(file, measuring, nullptr, {.experts = &measuring}));
  // Counts of another model of this name and size would only choose worse.
  expert_count_file_ = expert_count_file(
      options_.prefix_dir.parent_path() / "experts",
      fmt::format("{}-{}", options_.model.stem().string(), model->info().file_bytes));
  const ExpertCounts counts = load_expert_counts(expert_count_file_);
  uint64_t num_experts = 0;
  for (const std::vector<uint64_t>& layer : counts) num_experts += layer.size();
  const uint64_t bytes = model->info().expert_bytes;
  hot_experts_ =
      hot_experts(counts, bytes / std::max<uint64_t>(num_experts, 1), options_.hot_expert_bytes);
  return {};
}

// The device of the layers takes what plan() returns, and that of the experts the rest.
Result<LoadPlan> EngineThread::plan_with_experts(const models::GgufFile& file,
                                                 const models::GgufFile* heads,
                                                 std::filesystem::path* draft,
                                                 const kernels::OpTable& ops) {
  const StageOptions& of_layers = options_.stages.front();
  const StageOptions& apart = options_.stages.back();
  const uint64_t all_bytes = options_.memory_bytes;
  HEARTH_TRY(choose_hot_experts(file));
  if (of_layers.memory_bytes > 0) options_.memory_bytes = of_layers.memory_bytes;
  HEARTH_ASSIGN_OR_RETURN(LoadPlan out, plan(file, heads, draft, ops));
  options_.memory_bytes = all_bytes;
  const kernels::OpTable measuring = measuring_ops();
  HEARTH_ASSIGN_OR_RETURN(
      const auto model, models::load_model(file, measuring, nullptr,
                                           {.experts = &measuring, .hot_experts = &hot_experts_}));
  HEARTH_ASSIGN_OR_RETURN(const engine::MemoryPlan memory,
                          engine::plan_memory(options_.engine, *model, 0));
  const models::ModelInfo& info = model->info();
  out.stages = {{.device = of_layers.device,
                 .end_layer = info.num_layers,
                 .weight_bytes = out.weight_bytes,
                 .kv_bytes = out.kv_bytes,
                 .other_bytes = out.other_bytes,
                 .budget_bytes = of_layers.memory_bytes},
                {.device = apart.device,
                 .end_layer = info.num_layers,
                 .weight_bytes = info.expert_bytes,
                 .other_bytes = model->expert_row_bytes(memory.max_step_tokens),
                 .budget_bytes = apart.memory_bytes,
                 .experts = true}};
  out.weight_bytes += info.expert_bytes;
  out.other_bytes += out.stages.back().other_bytes;
  for (const ipc::StageUse& use : out.stages) {
    const uint64_t bytes = bytes_of(use);
    if (use.budget_bytes == 0 || bytes <= use.budget_bytes) continue;
    return Error::out_of_memory(
        fmt::format("experts: {}: weights {}, KV {}, activations {} take {} bytes, memory_bytes is "
                    "{}; the other device takes {}",
                    use.device, use.weight_bytes, use.kv_bytes, use.other_bytes, bytes,
                    use.budget_bytes, bytes_of(out.stages[use.experts ? 0 : 1])),
        "experts");
  }
  return out;
}

// Reports the memory that will be taken. On a device with its own memory it also sizes the pools,
// and refuses a model that does not fit.
Result<LoadPlan> EngineThread::plan(const models::GgufFile& file, const models::GgufFile* heads,
                                    std::filesystem::path* draft, const kernels::OpTable& ops) {
  const std::optional<uint64_t> reserved = reserved_bytes();
  PackingMeter packing;
  const kernels::OpTable measuring_experts = measuring_ops();
  models::LoadOptions load_as = load_options();
  if (load_as.experts != nullptr) load_as.experts = &measuring_experts;
  HEARTH_ASSIGN_OR_RETURN(
      const std::unique_ptr<models::Model> model,
      models::load_model(
          file,
          measuring_ops([&packing](auto tensors, auto role) { return packing.add(tensors, role); },
                        ops.most_packed_bytes),
          nullptr, load_as));
  LoadPlan of_draft;
  if (model->info().drafts) draft->clear();
  if (heads != nullptr && !draft->empty()) {
    if (const Result<void> added = model->add_heads(*heads); !added.ok()) {
      warn_no_draft(*draft, added.error());
      draft->clear();
    }
  } else if (!draft->empty()) {
    Result<LoadPlan> its = plan_draft(*draft, model->info(), ops, &packing);
    if (its.ok()) {
      of_draft = *its;
    } else {
      warn_no_draft(*draft, its.error());
      draft->clear();
    }
  }
  if (reserved) {
    const DeviceRoom room{.free_bytes = ops.device.memory_free_bytes,
                          .reserved_bytes = *reserved,
                          .weight_bytes = model->info().weight_bytes,
                          .scratch_bytes = packing.extra_bytes(),
                          .draft_bytes = bytes_of(of_draft)};
    HEARTH_ASSIGN_OR_RETURN(options_.engine, fit_to_device(options_.engine, *model, room));
  }
  HEARTH_ASSIGN_OR_RETURN(
      engine::MemoryPlan memory,
      engine::plan_memory(options_.engine, *model, ops.device.memory_free_bytes));
  // Alone in memory the model may use the whole budget, and never more.
  const uint64_t others = model->info().weight_bytes + memory.total_bytes() - memory.kv_bytes +
                          bytes_of(of_draft) + packing.extra_bytes() + reserved.value_or(0);
  if (options_.memory_bytes > 0 && options_.engine.kv_bytes == 0 && model->info().generates &&
      others + memory.kv_bytes > options_.memory_bytes && others < options_.memory_bytes) {
    options_.engine.kv_bytes = options_.memory_bytes - others;
    HEARTH_ASSIGN_OR_RETURN(memory, engine::plan_memory(options_.engine, *model, 0));
  }
  memory.set_extents(elastic_granule(ops));
  return LoadPlan{.weight_bytes = model->info().weight_bytes + of_draft.weight_bytes,
                  .kv_bytes = memory.kv_bytes + of_draft.kv_bytes,
                  .other_bytes = memory.total_bytes() - memory.kv_bytes + of_draft.other_bytes +
                                 packing.extra_bytes() + reserved.value_or(0),
                  .device_free_bytes = reserved ? ops.device.memory_free_bytes : 0,
                  .host_bytes = ram_bytes(),
                  .kv_floor_bytes = memory.floor_bytes() + of_draft.kv_floor_bytes};
}

Result<LoadPlan> EngineThread::plan_in_stages(const models::GgufFile& file, bool heads,
                                              std::filesystem::path* draft,
                                              const kernels::OpTable& ops) {
  std::vector<StageRoom> rooms;
  uint64_t free_bytes = 0, host_free_bytes = 0;
  for (size_t i = 0; i < stages_.size(); ++i) {
    const kernels::OpTable& table = stages_[i].table.ops;
    StageRoom& room = rooms.emplace_back();
    room = {.device = stages_[i].table.device,
            .threads = table.device.num_threads,
            .memory_bytes = options_.stages[i].memory_bytes};
    if (!models::has_own_memory(table)) {
      host_free_bytes = table.device.memory_free_bytes;
      continue;
    }
    room.own_memory = true;
    free_bytes += table.device.memory_free_bytes;
    room.bound_is_free =
        room.memory_bytes == 0 || room.memory_bytes > table.device.memory_free_bytes;
    if (room.bound_is_free) room.memory_bytes = table.device.memory_free_bytes;
  }
  const auto make_plan = options_.split ? plan_split : plan_stages;
  HEARTH_ASSIGN_OR_RETURN(
      StagedPlan plan,
      make_plan(file, rooms, options_.engine, options_.memory_bytes, free_bytes + host_free_bytes));
  options_.engine = plan.engine;
  for (size_t i = 0; i < plan.layers.size(); ++i) stages_[i].layers = plan.layers[i];
  plan.memory.set_extents(elastic_granule(joint_ops()));
  LoadPlan out{.weight_bytes = plan.info.weight_bytes,
               .kv_bytes = plan.memory.kv_bytes,
               .host_bytes = plan.host_bytes,
               .kv_floor_bytes = plan.memory.floor_bytes(),
               .stages = plan.uses};
  for (const ipc::StageUse& use : plan.uses) out.other_bytes += use.other_bytes;
  if (heads) {
    warn_no_draft(*draft, Error::unsupported("a model on several devices takes no heads"));
    draft->clear();
  }
  if (!draft->empty()) add_draft(draft, plan.info, ops, &out);
  return out;
}

void EngineThread::add_draft(std::filesystem::path* draft, const models::ModelInfo& target,
                             const kernels::OpTable& ops, LoadPlan* plan) {
  PackingMeter packing;
  const Result<LoadPlan> its = plan_draft(*draft, target, ops, &packing);
  if (!its.ok()) {
    warn_no_draft(*draft, its.error());
    return draft->clear();
  }
  const uint64_t bytes = bytes_of(*its);
  ipc::StageUse& first = plan->stages.front();
  const auto over = [bytes](uint64_t bound, uint64_t taken) {
    return bound > 0 && taken + bytes > bound;
  };
  if (over(first.budget_bytes, bytes_of(first)) || over(options_.memory_bytes, bytes_of(*plan))) {
    warn_no_draft(*draft, Error::out_of_memory(
                              fmt::format("{} bytes, the first stage has less room", bytes)));
    return draft->clear();
  }
  first.weight_bytes += its->weight_bytes;
  first.kv_bytes += its->kv_bytes;
  first.other_bytes += its->other_bytes;
  plan->weight_bytes += its->weight_bytes;
  plan->kv_bytes += its->kv_bytes;
  plan->other_bytes += its->other_bytes;
  plan->kv_floor_bytes += its->kv_floor_bytes;
}

// Compares the reserve with the memory taken, once everything is loaded and captured.
Result<std::optional<ipc::DeviceMemory>> EngineThread::settle(const kernels::OpTable& ops,
                                                              const LoadPlan& planned) const {
  // In stages, several devices have taken memory, and no step is captured.
  if (in_stages_) return std::optional<ipc::DeviceMemory>();
  const std::optional<DeviceUse> use = device_use(ops);
  const std::optional<uint64_t> reserved = reserved_bytes();
  if (!use || !reserved) return std::optional<ipc::DeviceMemory>();
  const uint64_t planned_bytes =
      planned.stages.empty() ? bytes_of(planned) : bytes_of(planned.stages.front());
  const DeviceBill bill{.free_before_bytes = planned.device_free_bytes,
                        .planned_bytes = planned_bytes - *reserved,
                        .reserved_bytes = *reserved,
                        .free_after_bytes = use->free_bytes,
                        .graph_bytes = use->graph_bytes,
                        .graphs_refused = use->graphs_refused};
  const uint64_t taken = bill.taken_bytes();
  log_info("device_memory", "planned={} reserved={} taken={} graphs={} free={}", bill.planned_bytes,
           *reserved, taken, bill.graph_bytes, bill.free_after_bytes);
  HEARTH_TRY(check_reserve(bill));
  if (taken > *reserved) {
    log_warn("device_memory",
             "taken={} reserved={} free={} why=\"this or another process took more memory "
             "outside the plan than was reserved; there was room for it\"",
             taken, *reserved, bill.free_after_bytes);
  }
  return std::optional(ipc::DeviceMemory{bill.planned_bytes, *reserved, taken, bill.graph_bytes});
}

Result<LoadPlan> EngineThread::plan_draft(const std::filesystem::path& path,
                                          const models::ModelInfo& target,
                                          const kernels::OpTable& ops,
                                          PackingMeter* packing) const {
  HEARTH_ASSIGN_OR_RETURN(models::GgufFile file, models::GgufFile::open(path));
  file.set_fingerprint("-");
  const auto measuring =
      measuring_ops([packing](auto tensors, auto role) { return packing->add(tensors, role); },
                    ops.most_packed_bytes);
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<models::Model> small,
                          models::load_model(file, measuring, nullptr));
  HEARTH_ASSIGN_OR_RETURN(
      engine::MemoryPlan its,
      engine::plan_draft_memory(options_.engine, target, *small, ops.device.memory_free_bytes));
  its.set_extents(elastic_granule(ops));
  return LoadPlan{.weight_bytes = small->info().weight_bytes,
                  .kv_bytes = its.kv_bytes,
                  .other_bytes = its.total_bytes() - its.kv_bytes,
                  .kv_floor_bytes = its.floor_bytes()};
}

}  // namespace hearth::worker
