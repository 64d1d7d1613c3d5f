#pragma once
// Runs a model over texts one after the other, without scheduler or sampler, and returns the logits
// after every token.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/base/result.h"
#include "kernels/ops.h"
#include "models/model.h"

namespace hearth::worker {

class LogitsRunner {
 public:
  /// For texts of up to `context` tokens. Allocates its memory here: kOutOfMemory. kUnsupported: an
  /// encoder.
  static Result<std::unique_ptr<LogitsRunner>> create(std::unique_ptr<models::Model> model,
                                                      kernels::OpTable ops,
                                                      kernels::KvTypes kv_type, int32_t context);

  const models::ModelInfo& info() const { return model_->info(); }

  /// Begins a new text.
  void begin() { length_ = 0; }
  /// The most rows of a step.
  static constexpr int32_t kStepTokens = 128;
  /// Computes up to kStepTokens tokens that continue the text. Returns their logits, one row of
  /// vocab_size each, valid until the next call.
  std::span<const float> step(std::span<const int32_t> tokens);

 private:
  LogitsRunner(std::unique_ptr<models::Model> model, kernels::OpTable ops, int32_t context)
      : ops_(std::move(ops)), context_(context), model_(std::move(model)) {}
  int32_t num_blocks() const;

  kernels::OpTable ops_;
  int32_t context_;
  std::unique_ptr<models::Model> model_;
  std::vector<kernels::DeviceBuffer> pool_memory_;
  std::vector<models::KvPool> pools_;
  kernels::DeviceBuffer index_;
  kernels::DeviceBuffer logits_;
  std::vector<float> host_logits_;
  int32_t length_ = 0;
};

}  // namespace hearth::worker
