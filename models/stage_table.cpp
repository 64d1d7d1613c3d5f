#include "models/stage_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

namespace hearth::models {
namespace {

/// The progress of several loaders.
class JoinedProgress {
 public:
  JoinedProgress(size_t count, const LoadProgressFn& report) : done_(count), report_(report) {}
  LoadProgressFn of(size_t stage) {
    if (report_ == nullptr) return nullptr;
    return [this, stage](const LoadProgress& progress) {
      const std::lock_guard lock(mutex_);
      done_[stage] = progress.bytes_done;
      LoadProgress sum{0, progress.bytes_total};
      for (const uint64_t bytes : done_) sum.bytes_done += bytes;
      sum.bytes_done = std::min(sum.bytes_done, sum.bytes_total);
      report_(sum);
    };
  }

 private:
  std::mutex mutex_;
  std::vector<uint64_t> done_;
  const LoadProgressFn& report_;
};

}  // namespace

void run_on(const StageTable& table, const std::function<void()>& call) {
  table.thread == nullptr ? call() : table.thread->run(call);
}

bool has_own_memory(const kernels::OpTable& ops) { return ops.mark != nullptr; }

kernels::OpTable joint_table(std::span<const StageTable* const> tables, std::string numerics_id) {
  const auto own = [](const StageTable* table) { return has_own_memory(table->ops); };
  kernels::OpTable joint = tables.front()->ops;
  if (std::ranges::any_of(tables, own)) {
    joint = kernels::reference_ops();  // for its memory and copies
    joint.elastic = nullptr;
    joint.draw = nullptr;
    joint.device = tables.front()->ops.device;
    joint.device.kind = joint.device.name = joint.device.variant = "";
    for (const StageTable* table : tables) {
      const kernels::DeviceInfo& device = table->ops.device;
      const char* const plus = table == tables.front() ? "" : "+";
      joint.device.kind += plus + device.kind;
      joint.device.name += plus + device.name;
      joint.device.variant += plus + device.variant;
      joint.any_kv_type = joint.any_kv_type && table->ops.any_kv_type;
      joint.any_kv_shape = joint.any_kv_shape && table->ops.any_kv_shape;
    }
  }
  joint.numerics_id = std::move(numerics_id);
  return joint;
}

Result<std::vector<std::unique_ptr<Model>>> load_on_tables(
    const GgufFile& file, std::span<const StageTable* const> tables,
    std::span<const LoadOptions> options, const std::string& field,
    const LoadProgressFn& progress) {
  JoinedProgress joined(tables.size(), progress);
  std::vector<std::optional<Result<std::unique_ptr<Model>>>> loaded(tables.size());
  const auto load = [&](size_t i) {
    loaded[i].emplace(load_model(file, tables[i]->ops, joined.of(i), options[i]));
  };
  for (size_t i = 0; i < tables.size(); ++i) {
    const StageTable& table = *tables[i];
    table.thread == nullptr ? load(i) : table.thread->post([&load, i] { load(i); });
  }
  for (const StageTable* table : tables) run_on(*table, [] {});
  std::vector<std::unique_ptr<Model>> models;
  for (size_t i = 0; i < tables.size(); ++i) {
    HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<Model> model, std::move(*loaded[i]));
    if (model->info().stages.empty()) {
      return Error::unsupported(
          fmt::format("architecture {}: not computed {}", model->info().architecture,
                      field == "split" ? "on several devices" : "in stages"),
          field);
    }
    models.push_back(std::move(model));
  }
  return models;
}

}  // namespace hearth::models
