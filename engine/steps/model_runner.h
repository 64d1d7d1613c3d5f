#pragma once
// Computes planned steps: owns the engine's device memory (KV pools, index buffers, logits), lays
// out the index arrays of each step at addresses that never change, and brings logits to the host.
// A device that draws tokens itself may have two steps in its queue: the second goes on with the
// tokens of the first before the host has seen them. Owned by the engine thread.

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
#include "models/model.h"

namespace hearth::engine {

class ModelRunner {
 public:
  /// Takes exactly plan.total_bytes() of device memory. kOutOfMemory names the part.
  static Result<std::unique_ptr<ModelRunner>> create(const MemoryPlan& plan, kernels::DType kv_type,
                                                     kernels::OpTable ops,
                                                     std::unique_ptr<models::Model> model);

  /// Makes the plan's copies, computes its rows, waits, and fetches what is wanted of its output
  /// rows; all logits where nothing is said of them.
  void run(const StepPlan& plan, std::span<const RowWish> wishes = {});

  // The same in parts, for a device that shall not wait between steps.
  /// Launches the step, or takes the one that was launched ahead where the plan is of rows of it.
  void start(const StepPlan& plan, std::span<const RowWish> wishes);
  /// Behind start(), of a plan that the scheduler has foreseen the next one of: launches that too,
  /// if the device knows how. Each row must have been started with a wish for a token.
  void start_next(const StepPlan& plan);
  /// Waits for the step that start() was called for.
  void finish(const StepPlan& plan);
  /// A step is under way, or has ended, that no plan was started for yet.
  bool ahead() const { return ahead_ != nullptr; }
  /// Nobody will start a plan for it. What it writes is behind the tokens of its sequences.
  void drop_ahead() { ahead_ = nullptr; }

  /// From now on the device's idle times are measured: from the end of one step to the beginning
  /// of the next. Nothing where it computes when it is called.
  void time_gaps() { gaps_timed_ = ops_.clock != nullptr; }
  /// Microseconds, of the steps since the last call.
  std::vector<double> take_gaps() { return std::exchange(gaps_us_, {}); }

  /// Whether a device has the logits and picks tokens of them: then wishes are worth saying.
  bool picks_tokens() const { return picks_tokens_; }
  /// The token of row `i`, drawn by the device with exactly these; none where it was not asked for,
  /// or is left to the host (kernels/ops/draw.h).
  std::optional<int32_t> drawn(int32_t i, uint64_t seed, int32_t sample, int32_t position) const;
  /// The best logits of row `i`, or null: likewise.
  const kernels::BestLogits* best_logits(int32_t i) const;
  /// Row `i` of the last step's outputs, in the order of the plan's rows. Host memory; the sampler
  /// may write into it. Fetched now where it was not wanted.
  std::span<float> logits(int32_t i);

  /// Makes the rows of the last step behind the model's last norm readable by final_row(): what
  /// embeddings are made of.
  void fetch_final_rows();
  /// Row `i` of the last step, in the order of the plan's rows. Host memory, until the next step.
  std::span<const float> final_row(int32_t i) const;

  /// The KV of one block, to and from host memory; layers in the pool's own order. Where that is
  /// of traffic(), it goes on beside the steps, and the host memory is free again
  /// when traffic().mark() of that moment has ended.
  void read_block(int32_t group, int32_t block, std::span<std::byte> out);
  void write_block(int32_t group, int32_t block, std::span<const std::byte> from);
  BlockTraffic& traffic() { return traffic_; }
  /// Has the system map the block's memory: writes zeros. Only where nobody has the block.
  void touch_block(int32_t group, int32_t block);

  /// Has the device take some `bytes` more of weights that were put off (OpTable::pack_more), also
  /// of a draft in the same table; what is left.
  uint64_t pack_more(uint64_t bytes);

  const models::ModelInfo& info() const { return model_->info(); }
  const MemoryPlan& memory_plan() const { return plan_; }

 private:
  ModelRunner(const MemoryPlan& plan, kernels::OpTable ops, std::unique_ptr<models::Model> model);

  std::byte* block_memory(int32_t group, int32_t block) const;
  void copy_blocks(std::span<const BlockCopy> copies);
  void copy_blocks_of(int32_t group, std::span<const BlockCopy> copies);
  StepBuffers& buffers_for_step();
  bool take_ahead(const StepPlan& plan);
  void launch(const StepPlan& plan, int32_t shift);
  void lay_out(const StepPlan& plan, int32_t shift);
  void lay_out_table(size_t group, int32_t row, std::span<const int32_t> table);
  void feed_drawn(const StepBuffers& from);
  void forward(const kernels::BatchIndex& batch);
  /// Host address of the array at that offset of the index buffer, for the step being laid out.
  int32_t* host(size_t offset) { return filled_->index.as<int32_t>() + offset / sizeof(int32_t); }
  template <typename T = int32_t>
  const T* device(size_t offset) const {
    return reinterpret_cast<const T*>(index_.data() + offset);
  }
  void upload(size_t offset, size_t count);
  void order_traffic(const StepPlan& plan, int32_t shift);
  void ask_outputs(std::span<const RowWish> wishes);
  bool left_to_host() const;
  void time_gap();
  int32_t output_row(int32_t i) const;

  const MemoryPlan plan_;
  kernels::OpTable ops_;  // outlives the buffers and the model, which free through its state
  std::vector<kernels::DeviceBuffer> pool_memory_;
  kernels::DeviceBuffer index_;
  kernels::DeviceBuffer logits_;
  std::unique_ptr<models::Model> model_;

  std::vector<models::KvPool> pools_;
  std::vector<kernels::GroupIndex> group_index_;
  kernels::BatchIndex batch_;  ///< addresses alone
  CapturedSteps captured_;
  std::vector<int32_t> tables_;      ///< the block tables that index_ holds behind all uploads
  kernels::HostBuffer host_logits_;  ///< where the device has memory of its own
  bool picks_tokens_ = false;
  StepBuffers buffers_[2];               ///< one where no step is launched ahead
  StepBuffers* filled_ = &buffers_[0];   ///< those being laid out
  StepBuffers* current_ = &buffers_[0];  ///< of the last step that was started
  StepBuffers* ahead_ = nullptr;         ///< of the step behind it
  std::vector<int32_t> rows_of_ahead_;   ///< current_'s row of each output row; empty: the same
  int32_t num_outputs_ = 0;              ///< of the last plan started
  std::vector<bool> fetched_;            ///< which logits are on the host, where not all are
  bool gaps_timed_ = false;
  uint64_t last_end_stamp_ = 0;
  std::vector<double> gaps_us_;
  kernels::TensorView final_rows_;
  std::vector<float> host_rows_;              ///< likewise
  std::vector<int32_t> copy_src_, copy_dst_;  ///< scratch
  std::vector<std::byte> zeros_;              ///< of touch_block
  BlockTraffic traffic_;
};

}  // namespace hearth::engine
