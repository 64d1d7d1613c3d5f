#pragma once
// Computes planned steps: owns the engine's device memory (KV pools, index buffers, logits), lays
// out the index arrays of each step at addresses that never change, and brings logits to the host.
// A device that draws tokens itself may have two steps in its queue: the second uses the tokens of
// the first before the host has seen them. Owned by the engine thread.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/kv/memory_plan.h"
#include "engine/scheduling/scheduler.h"
#include "engine/steps/block_traffic.h"
#include "engine/steps/captured_steps.h"
#include "engine/steps/step_buffers.h"
#include "kernels/ops.h"
#include "kernels/ops/device_clock.h"
#include "kernels/ops/elastic_memory.h"
#include "models/model.h"

namespace hearth::engine {

class ModelRunner final : public BlockMemory {
 public:
  /// Takes plan.total_bytes() of device memory, of which KV blocks may be addresses alone until
  /// they are backed. kOutOfMemory names the part.
  static Result<std::unique_ptr<ModelRunner>> create(const MemoryPlan& plan,
                                                     kernels::KvTypes kv_type, kernels::OpTable ops,
                                                     std::unique_ptr<models::Model> model);
  ~ModelRunner() override { model_->settle(); }

  /// Makes the plan's copies, computes its rows, waits, and fetches the results in `wishes` of its
  /// output rows; all logits without wishes.
  void run(const StepPlan& plan, std::span<const RowWish> wishes = {});

  // The same in parts, for a device that should not wait between steps.
  /// Launches the step, or takes the one that was launched ahead if the plan has only rows of it.
  void start(const StepPlan& plan, std::span<const RowWish> wishes);
  /// After start(), if the scheduler has reserved the next step: launches that, too, if the device
  /// can. Each row must have been started with a wish for a token.
  void start_next(const StepPlan& plan);
  /// Computes the draft layer or a head for the plan's rows, one of each sequence
  /// (models::Model::draft), and waits. Row i continues row `rows[i]`: of final rows of the last
  /// step for `place` 0, otherwise of the draft before. Results are fetched as those of a step.
  void draft(const StepPlan& plan, std::span<const int32_t> rows, int32_t place,
             std::span<const RowWish> wishes);
  /// Steps started so far, without drafts.
  uint64_t num_steps() const { return num_steps_; }
  /// Makes copies that no plan has.
  void make_copies(std::span<const BlockCopy> copies);

  /// Waits for the step that start() was called for.
  void finish(const StepPlan& plan);
  /// True if the device has left the token of this output row to the host, and the step launched
  /// ahead has overwritten its logits. Only for a model with states, whose step cannot be repeated.
  bool logits_lost(int32_t output_row) const;
  /// True if a step was launched ahead whose plan has not been started yet.
  bool ahead() const { return ahead_ != nullptr; }
  /// Discards it: no plan will be started for it. It writes only after the tokens of its sequences.
  void drop_ahead() { ahead_ = nullptr; }

  /// From now on measures the device's idle times, from the end of one step to the beginning of the
  /// next. Measures nothing if the device computes inside the call.
  void time_gaps() { gaps_timed_ = ops_.clock != nullptr; }
  /// Microseconds, of the steps since the last call.
  std::vector<double> take_gaps() { return std::exchange(gaps_us_, {}); }

  /// Whether the device has the logits and can pick tokens: only then are wishes used.
  bool picks_tokens() const { return picks_tokens_; }
  /// The token of row `i`, drawn by the device with exactly these; none if it was not asked for or
  /// is left to the host (kernels/ops/draw.h).
  std::optional<int32_t> drawn(int32_t i, uint64_t seed, int32_t sample, int32_t position) const;
  /// The best logits of row `i`, or null: likewise.
  const kernels::BestLogits* best_logits(int32_t i) const;
  /// Row `i` of the last step's outputs, in the order of the plan's rows. Host memory; the sampler
  /// may write into it. Fetched now if it was not fetched with the step.
  std::span<float> logits(int32_t i);

  /// Fetches the rows of the last step after the model's last norm, for final_row(): embeddings are
  /// made from them.
  void fetch_final_rows();
  /// Row `i` of the last step, in the order of the plan's rows. Host memory, until the next step.
  std::span<const float> final_row(int32_t i) const;

  /// Copies the KV of one block to or from host memory; layers in the pool's order. If the memory
  /// is a piece of traffic(), the copy runs alongside the steps, and the piece is free again when
  /// the traffic().mark() taken afterwards has ended.
  void read_block(int32_t group, int32_t block, std::span<std::byte> out);
  void write_block(int32_t group, int32_t block, std::span<const std::byte> from);
  BlockTraffic& traffic() { return traffic_; }

  bool back(int32_t group, int32_t first, int32_t end) override;
  void give_back(int32_t group, int32_t first, int32_t end) override;
  uint64_t backed_bytes() const override;

  /// Packs about `bytes` more of the late weights (OpTable::pack_more), also those of a draft model
  /// in the same table. Returns the bytes that are left.
  uint64_t pack_more(uint64_t bytes);
  /// OpTable::put_off.
  bool can_put_off() const { return ops_.put_off != nullptr; }
  uint64_t put_off() { return ops_.put_off(ops_.state.get()); }
  /// Steps may read weights from the file.
  bool keeps_sources() const { return ops_.most_packed_bytes < UINT64_MAX; }

  const models::ModelInfo& info() const { return model_->info(); }
  /// As of models::Model; they wait for steps that were launched.
  Result<int32_t> add_adapter(const models::GgufFile& file);
  uint64_t adapter_bytes(int32_t adapter) const { return model_->adapter_bytes(adapter); }
  void remove_adapter(int32_t adapter);
  const MemoryPlan& memory_plan() const { return plan_; }

 private:
  ModelRunner(const MemoryPlan& plan, kernels::OpTable ops, std::unique_ptr<models::Model> model);

  Result<void> reserve_pools(kernels::KvTypes kv_type);
  std::byte* block_memory(int32_t group, int32_t block) const;
  void copy_blocks(std::span<const BlockCopy> copies);
  void copy_blocks_of(int32_t group, std::span<const BlockCopy> copies);
  StepBuffers& buffers_for_step();
  bool take_ahead(const StepPlan& plan);
  void launch(const StepPlan& plan, int32_t shift);
  void launch_draft();
  /// Whether the plan's rows store nothing: they are computed by heads.
  bool stores_nothing(const StepPlan& plan) const {
    return plan.by_draft_layer && info().draft_heads > 0;
  }
  struct RowSet;
  struct LaidOut;
  void lay_out(const StepPlan& plan, int32_t shift);
  void lay_out_set(const RowSet& set, LaidOut& to);
  void lay_out_branches(const StepPlan& plan, LaidOut& to);
  void lay_out_adapters(const RowSet& set, const LaidOut& from, const LaidOut& to);
  int32_t slot(std::span<const int32_t> table, int32_t position) const;
  void place_branch_stores();
  void lay_out_state(int32_t row, const PlannedRows& rows, int32_t shift);
  void lay_out_table(size_t group, int32_t row, std::span<const int32_t> table);
  void feed_drawn(const StepBuffers& from);
  void forward(const kernels::BatchIndex& batch);
  models::StepArgs step_args(const kernels::BatchIndex& batch);
  /// Host address of the array at that offset of the index buffer, for the step being laid out.
  int32_t* host(size_t offset) { return filled_->index.as<int32_t>() + offset / sizeof(int32_t); }
  template <typename T = int32_t>
  const T* device(size_t offset) const {
    return reinterpret_cast<const T*>(index_.data() + offset);
  }
  void upload(size_t offset, size_t count);
  void order_traffic(const StepPlan& plan, int32_t shift);
  bool meets_traffic(const SequenceBlocks& blocks, int32_t first, int32_t end) const;
  void ask_outputs(std::span<const RowWish> wishes);
  bool left_to_host() const;
  void time_gap();
  int32_t output_row(int32_t i) const;

  const MemoryPlan plan_;
  kernels::OpTable ops_;  // outlives the buffers and the model, which free through its state
  std::vector<kernels::ElasticBuffer> pool_memory_;
  kernels::DeviceBuffer index_;
  kernels::DeviceBuffer logits_;
  std::unique_ptr<models::Model> model_;

  models::DividedKv* divided_kv_ = nullptr;  ///< the model's; null: pool_memory_ has the KV
  std::vector<models::KvPool> pools_;
  std::vector<kernels::GroupIndex> group_index_;
  kernels::BatchIndex batch_;  ///< addresses alone
  /// For StepArgs::also_stored: addresses, and the indexes of their groups.
  std::vector<kernels::BatchIndex> branch_stores_;
  std::vector<std::vector<kernels::GroupIndex>> branch_groups_;
  size_t num_branch_stores_ = 0;                   ///< of the step being laid out
  std::vector<models::AdaptedRows> adapted_;       ///< of the step being laid out
  std::span<const AppliedAdapter> last_adapters_;  ///< those of its last set of rows
  CapturedSteps captured_;
  std::vector<CapturedSteps> captured_drafts_;  ///< per place, with heads; else one
  uint64_t num_steps_ = 0;
  std::vector<int32_t> tables_;      ///< the block tables in index_ after all uploads
  kernels::HostBuffer host_logits_;  ///< if the device has memory of its own
  bool picks_tokens_ = false;
  StepBuffers buffers_[2];               ///< one if no step is launched ahead
  StepBuffers* filled_ = &buffers_[0];   ///< those being laid out
  StepBuffers* current_ = &buffers_[0];  ///< of the last step that was started
  StepBuffers* ahead_ = nullptr;         ///< of the step launched ahead
  std::vector<int32_t> rows_of_ahead_;   ///< current_'s row of each output row; empty: the same
  int32_t num_outputs_ = 0;              ///< of the last plan started
  int32_t draft_place_ = 0;              ///< of the draft being launched
  std::vector<bool> fetched_;            ///< which logits are on the host, if not all are
  bool gaps_timed_ = false;
  uint64_t last_end_stamp_ = 0;
  std::vector<double> gaps_us_;
  kernels::TensorView final_rows_;
  std::vector<float> host_rows_;                           ///< likewise
  std::vector<int32_t> copy_src_, copy_dst_, row_tokens_;  ///< scratch
  BlockTraffic traffic_;
};

}  // namespace hearth::engine
