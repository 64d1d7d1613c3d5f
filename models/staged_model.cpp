#include "models/staged_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/numbers.h"
#include "models/device_index.h"
#include "models/divided_kv.h"
#include "models/gguf/gguf_file.h"
#include "models/row_pieces.h"

namespace hearth::models {
namespace {

using kernels::BatchIndex;
using kernels::TensorView;

class StagedModel final : public Model {
 public:
  struct Part {
    StageTable table;
    std::unique_ptr<Model> model;
    // Of a device with its own memory:
    std::optional<DeviceIndex> index{};
    kernels::DeviceBuffer logits{};  ///< in the last stage
  };
  StagedModel(std::vector<Part> parts, ModelInfo info)
      : parts_(std::move(parts)), info_(std::move(info)), slots_(parts_.size() + kSpareSlots) {}
  ~StagedModel() override { settle(); }

  const ModelInfo& info() const override { return info_; }
  void set_context_length(int32_t context_length) override {
    for (Part& part : parts_) part.model->set_context_length(context_length);
  }
  uint64_t activation_bytes(int32_t max_tokens, int32_t max_outputs) const override;
  Result<void> reserve(int32_t max_tokens, int32_t max_outputs) override;
  void forward(const StepArgs& args) override;
  void settle() override { kernels::wait_for_count(num_computed_, num_started_); }
  Result<DividedKv*> divide_kv(std::span<const PoolSize> sizes) override;
  TensorView final_rows(const BatchIndex&) override {
    settle();
    return final_rows_;
  }
  Result<void> add_heads(const GgufFile& file) override { return refuse(file, "heads"); }
  Result<int32_t> add_adapter(const GgufFile& file) override { return refuse(file, "adapters"); }

 private:
  /// A piece on its way through the stages.
  struct Slot {
    PieceIndex index;
    StepArgs args;
    TensorView final_rows;  ///< where its final rows go
  };
  /// More than stages, so that none waits for a slot to come back.
  static constexpr size_t kSpareSlots = 2;

  Error refuse(const GgufFile& file, std::string_view what) const {
    return Error::unsupported(
        fmt::format("{}: a model in stages takes no {}", printable(file.name()), what), "stages");
  }
  TensorView rows(std::byte* data, int32_t count) const {
    return {data, kernels::DType::kF32, count, info_.width, info_.width};
  }
  uint64_t hidden_bytes(int32_t max_tokens, int32_t max_outputs) const;
  Result<std::byte*> reserve_rows(uint64_t bytes);
  Result<void> reserve_buffers(Part& part, int32_t piece_rows, int32_t max_outputs);
  Slot& free_slot();
  void compute(Slot& slot, size_t stage);
  void forward(const Slot& slot, size_t stage);

  std::vector<Part> parts_;
  ModelInfo info_;
  std::vector<Slot> slots_;
  std::vector<RowPiece> pieces_;  ///< scratch
  // One of the two: rows between stages. Host memory.
  kernels::DeviceBuffer hidden_;
  kernels::HostBuffer locked_hidden_;
  std::optional<DividedKv> kv_;  ///< if a stage has its own memory
  std::vector<PoolSize> pool_sizes_;
  TensorView final_rows_;     ///< of the last step
  uint64_t num_started_ = 0;  ///< pieces
  std::atomic<uint64_t> num_computed_{0};
};

uint64_t StagedModel::hidden_bytes(int32_t max_tokens, int32_t max_outputs) const {
  const uint64_t row_bytes = sizeof(float) * info_.width;
  return row_bytes * (max_tokens + slots_.size() * most_piece_rows(max_tokens, max_outputs));
}

uint64_t StagedModel::activation_bytes(int32_t max_tokens, int32_t max_outputs) const {
  uint64_t bytes = hidden_bytes(max_tokens, max_outputs);
  const int32_t piece_rows = most_piece_rows(max_tokens, max_outputs);
  for (const Part& part : parts_) bytes += part.model->activation_bytes(piece_rows, max_outputs);
  return bytes;
}

Result<void> StagedModel::reserve(int32_t max_tokens, int32_t max_outputs) {
  const int32_t piece_rows = most_piece_rows(max_tokens, max_outputs);
  HEARTH_ASSIGN_OR_RETURN(std::byte * next, reserve_rows(hidden_bytes(max_tokens, max_outputs)));
  final_rows_ = rows(next, max_tokens);
  next += sizeof(float) * info_.width * max_tokens;
  for (Slot& slot : slots_) {
    slot.args.hidden = rows(next, piece_rows);
    next += sizeof(float) * info_.width * piece_rows;
  }
  for (Part& part : parts_) {
    Result<void> reserved;
    run_on(part.table, [&] { reserved = part.model->reserve(piece_rows, max_outputs); });
    HEARTH_TRY(reserved);
    if (kv_) HEARTH_TRY(reserve_buffers(part, piece_rows, max_outputs));
  }
  return {};
}

// Page-locked if a device with its own memory can: its copies are faster.
Result<std::byte*> StagedModel::reserve_rows(uint64_t bytes) {
  for (const Part& part : parts_) {
    if (!has_own_memory(part.table.ops)) continue;
    locked_hidden_ = kernels::HostBuffer(part.table.ops, bytes);
    return locked_hidden_.as<std::byte>();
  }
  HEARTH_ASSIGN_OR_RETURN(hidden_, kernels::DeviceBuffer::allocate(parts_.front().table.ops, bytes,
                                                                   "rows between stages"));
  return hidden_.data();
}

Result<void> StagedModel::reserve_buffers(Part& part, int32_t piece_rows, int32_t max_outputs) {
  const kernels::OpTable& ops = part.table.ops;
  if (!has_own_memory(ops)) return {};
  HEARTH_ASSIGN_OR_RETURN(
      part.index, DeviceIndex::reserve(ops, DeviceIndex::bytes_for(piece_rows, pool_sizes_)));
  if (&part != &parts_.back()) return {};
  HEARTH_ASSIGN_OR_RETURN(
      part.logits, kernels::DeviceBuffer::allocate(
                       ops, sizeof(float) * max_outputs * info_.vocab_size, "logits of a stage"));
  return {};
}

Result<DividedKv*> StagedModel::divide_kv(std::span<const PoolSize> sizes) {
  const auto own = [](const Part& part) { return has_own_memory(part.table.ops); };
  if (std::ranges::none_of(parts_, own)) return nullptr;
  std::vector<const kernels::OpTable*> tables;
  for (const Part& part : parts_) tables.push_back(&part.table.ops);
  HEARTH_ASSIGN_OR_RETURN(kv_, DividedKv::reserve(tables, info_.stages, info_, sizes));
  pool_sizes_.assign(sizes.begin(), sizes.end());
  return &*kv_;
}

StagedModel::Slot& StagedModel::free_slot() {
  if (num_started_ >= slots_.size()) {
    kernels::wait_for_count(num_computed_, num_started_ - slots_.size() + 1);
  }
  return slots_[num_started_++ % slots_.size()];
}

void StagedModel::forward(const StepArgs& args) {
  HEARTH_CHECK(args.adapted.empty() && args.batch->num_tokens <= final_rows_.rows, "{} rows",
               args.batch->num_tokens);
  cut_rows(args, &pieces_);
  for (const RowPiece& piece : pieces_) {
    Slot& slot = free_slot();
    slot.index.fill(args, piece);
    const BatchIndex& batch = slot.index.batch();
    slot.args.batch = &batch;
    slot.args.pools = args.pools;
    slot.args.logits = args.logits;
    slot.args.logits.rows = batch.num_outputs;
    if (batch.num_outputs > 0) {
      slot.args.logits.data = args.logits.row<float>(slot.index.first_output());
    }
    slot.args.also_stored = {};
    if (piece.first == 0) slot.args.also_stored = args.also_stored;
    slot.final_rows = final_rows_;
    slot.final_rows.data = final_rows_.row<float>(piece.first);
    compute(slot, 0);
  }
  if (args.batch->num_outputs > 0) settle();
}

// A device with its own memory has computed when this returns: its rows are on the host.
void StagedModel::forward(const Slot& slot, size_t stage) {
  Part& part = parts_[stage];
  StepArgs args = slot.args;
  if (kv_) args.pools = kv_->pools(stage);
  if (part.index) part.index->upload(&args);
  if (part.logits.size() > 0) args.logits.data = part.logits.data();
  part.model->forward(args);
  const int32_t outputs = slot.index.batch().num_outputs;
  if (part.logits.size() == 0 || outputs == 0) return;
  const kernels::OpTable& ops = part.table.ops;
  ops.copy_to_host(ops.state.get(), slot.args.logits.data, args.logits.data,
                   sizeof(float) * outputs * info_.vocab_size);
}

void StagedModel::compute(Slot& slot, size_t stage) {
  forward(slot, stage);
  if (stage + 1 < parts_.size()) {
    const auto go_on = [this, &slot, stage] { compute(slot, stage + 1); };
    const StageTable& next = parts_[stage + 1].table;
    return next.thread == nullptr ? go_on() : next.thread->post(go_on);
  }
  std::copy_n(slot.args.hidden.row<float>(0), int64_t{info_.width} * slot.args.batch->num_tokens,
              slot.final_rows.row<float>(0));
  num_computed_.fetch_add(1, std::memory_order_release);
  num_computed_.notify_one();
}

/// What the stages are together.
ModelInfo join(const std::vector<StagedModel::Part>& parts) {
  ModelInfo info = parts.front().model->info();
  info.stages.clear();
  info.weight_bytes = 0;
  for (const StagedModel::Part& part : parts) {
    info.weight_bytes += part.model->info().weight_bytes;
    for (const StageInfo& stage : part.model->info().stages) {
      info.stages.push_back(stage);
      info.stages.back().device = part.table.device;
    }
  }
  return info;
}

/// Ids with the layers that they compute, neighbours of one id together; one id alone without.
std::string joined_numerics(const std::vector<Stage>& stages) {
  std::string out;
  for (size_t i = 0; i < stages.size();) {
    const std::string& id = stages[i].table.ops.numerics_id;
    const int32_t first = stages[i].layers.first;
    while (i < stages.size() && stages[i].table.ops.numerics_id == id) ++i;
    if (first == 0 && i == stages.size()) return id;
    out +=
        fmt::format("{}{}:{}-{}", out.empty() ? "" : "+", id, first, stages[i - 1].layers.end - 1);
  }
  return out;
}

}  // namespace

kernels::OpTable engine_table(const std::vector<Stage>& stages) {
  std::vector<const StageTable*> tables;
  for (const Stage& stage : stages) tables.push_back(&stage.table);
  return joint_table(tables, joined_numerics(stages));
}

uint64_t stage_buffer_bytes(std::span<const PoolSize> sizes, int32_t max_tokens,
                            int32_t max_outputs, int32_t vocab_size, bool last) {
  const int32_t rows = most_piece_rows(max_tokens, max_outputs);
  return DeviceIndex::bytes_for(rows, sizes) +
         (last ? sizeof(float) * max_outputs * vocab_size : 0);
}

Result<std::unique_ptr<Model>> load_staged_model(const GgufFile& file, std::vector<Stage> stages,
                                                 const LoadProgressFn& progress) {
  HEARTH_CHECK(!stages.empty());
  std::vector<const StageTable*> tables;
  std::vector<LoadOptions> options;
  for (const Stage& stage : stages) {
    tables.push_back(&stage.table);
    options.push_back({.layers = stage.layers});
  }
  HEARTH_ASSIGN_OR_RETURN(auto models, load_on_tables(file, tables, options, "stages", progress));
  std::vector<StagedModel::Part> parts;
  for (size_t i = 0; i < stages.size(); ++i) {
    parts.push_back({std::move(stages[i].table), std::move(models[i])});
  }
  ModelInfo info = join(parts);
  HEARTH_CHECK(info.stages.front().layers.first == 0 &&
               info.stages.back().layers.end == info.num_layers);
  return std::unique_ptr<Model>(std::make_unique<StagedModel>(std::move(parts), std::move(info)));
}

}  // namespace hearth::models
