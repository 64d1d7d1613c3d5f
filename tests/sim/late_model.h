#pragma once
// A model that computes steps without outputs as late as models::Model permits: after later ones
// were posted, or in settle(). An engine that forgets to settle reads or moves blocks too early.

#include <deque>
#include <memory>
#include <utility>

#include "models/model.h"
#include "models/row_pieces.h"

namespace hearth::tests {

class LateModel final : public models::Model {
 public:
  explicit LateModel(std::unique_ptr<models::Model> model) : model_(std::move(model)) {}
  ~LateModel() override { settle(); }

  const models::ModelInfo& info() const override { return model_->info(); }
  void set_context_length(int32_t context_length) override {
    model_->set_context_length(context_length);
  }
  Result<void> reserve(int32_t max_tokens, int32_t max_outputs) override {
    return model_->reserve(max_tokens, max_outputs);
  }
  uint64_t activation_bytes(int32_t max_tokens, int32_t max_outputs) const override {
    return model_->activation_bytes(max_tokens, max_outputs);
  }
  void forward(const models::StepArgs& args) override {
    if (args.batch->num_outputs > 0) {
      settle();
      return model_->forward(args);
    }
    if (waiting_.size() == kMostWaiting) compute_first();
    Waiting& step = waiting_.emplace_back();
    step.index.fill(args, {0, args.batch->num_tokens});
    step.args.batch = &step.index.batch();
    step.args.pools = args.pools;
  }
  void settle() override {
    while (!waiting_.empty()) compute_first();
  }

 private:
  static constexpr size_t kMostWaiting = 3;
  struct Waiting {
    models::PieceIndex index;
    models::StepArgs args{};
  };
  void compute_first() {
    model_->forward(waiting_.front().args);
    waiting_.pop_front();
  }

  std::unique_ptr<models::Model> model_;
  std::deque<Waiting> waiting_;  // does not move what is in it
};

}  // namespace hearth::tests
