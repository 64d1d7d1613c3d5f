#pragma once
// A model without arithmetic, for simulation: it depends only on the index buffers.
//
// forward() writes (position, token) of each row into the KV slot that the step names, in every
// layer of every group, and computes the logits of an output row as a hash of all (position, token)
// pairs READ BACK through the block table, as attention would. So a wrong block, a missed
// copy-on-write, a stale prefix hit or a lost token changes the text, and the expected text is a
// pure function of the request (`expected_tokens`). A recurrent group's state is a hash of all
// tokens, which checks at each token that it is the next one. With `drafts`, the last layer of the
// first group drafts: from what it reads back of the tokens it computes the model's own logits, and
// it checks that the final row it continues is that of the token before. With
// `draft_heads` its drafts depend on the last token alone. With a `canvas` a row's
// hash is over all tokens of its sequence. Time is a fake clock that each step advances by a
// formula.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/request.h"
#include "kernels/base/clock.h"
#include "kernels/ops.h"
#include "models/model.h"

namespace hearth::tests {

/// Host memory that counts allocations. Only memory, copies and copy_blocks exist. Access to pool
/// memory that is not backed is a fault.
struct FakeDevice {
  uint64_t bytes = 0;  ///< allocated or reserved
  uint64_t bytes_max = 0;
  uint64_t limit = UINT64_MAX;  ///< `allocate` and `reserve` fail above
  uint64_t backed = 0;
  uint64_t backed_limit = UINT64_MAX;  ///< `back` fails above
  uint64_t times_backed = 0, times_given_back = 0;
};
kernels::OpTable fake_ops(std::shared_ptr<FakeDevice> device);

/// Duration of a step.
struct FakeCost {
  double base_us = 1000;      ///< reading the weights once
  double per_token_us = 10;   ///< each row
  double per_context_us = 0;  ///< per (row, position attended to) pair
};

inline constexpr int32_t kRecurrent = -1;

struct FakeModelConfig {
  int32_t vocab_size = 61;
  int32_t context_length = 512;
  /// One layer group each; 0: full; kRecurrent, as the last: a state.
  std::vector<int32_t> windows = {0};
  int32_t num_layers = 2;  ///< of each group
  bool drafts = false;
  int32_t draft_heads =
      0;  ///< with `drafts`: heads, which store nothing, draft in place of a layer
  int32_t wrong_every = 3;  ///< drafts of the tokens at such positions are wrong
  models::CanvasModel canvas;
  FakeCost cost;
  bool late = false;  ///< as a model in stages (LateModel); neither drafts nor canvas then
};

class FakeModel final : public models::Model {
 public:
  FakeModel(const FakeModelConfig& config, std::shared_ptr<FakeDevice> device, FakeClock& clock);
  const models::ModelInfo& info() const override { return info_; }
  Result<void> reserve(int32_t max_tokens, int32_t max_outputs) override;
  uint64_t activation_bytes(int32_t max_tokens, int32_t max_outputs) const override;
  void forward(const models::StepArgs& args) override;
  void choose_draft_rows(std::span<const int32_t> rows, bool own) override;
  void draft(const models::StepArgs& args, int32_t place) override;
  uint64_t num_drafts() const { return num_drafts_; }

  /// Called before each step, for tests that look at the batch or change the logits after it.
  std::function<void(const models::StepArgs&)> before_step;
  std::function<void(const models::StepArgs&)> after_step;
  std::function<void(const models::StepArgs&)> after_draft;

 private:
  /// What a state knows of its sequence: how many tokens it has seen, and a hash of them.
  struct State {
    uint64_t hash;
    int32_t tokens;
    int32_t written;
  };
  struct Token {
    int32_t position, token;
  };
  static void advance(State& state, const Token& token);
  /// Computes the state of each row; see StateStep.
  void compute_states(const kernels::BatchIndex& batch, const models::KvPool& pool);
  void store_tokens(const models::StepArgs& args, size_t g);
  /// The hash of what an output row sees of its sequence.
  uint64_t hash_of_row(const models::StepArgs& args, int32_t row) const;

  FakeModelConfig config_;
  models::ModelInfo info_;
  std::vector<State> row_states_;  ///< of the last step, per row
  std::vector<Token> kept_;
  std::vector<int32_t> step_positions_, own_positions_;  ///< of the rows of the last step, draft
  std::vector<int32_t> continued_;                       ///< positions of the rows that were chosen
  uint64_t num_drafts_ = 0;
  kernels::OpTable ops_;
  kernels::DeviceBuffer activations_;
  FakeClock& clock_;
};

/// The logits that follow `history`.
std::vector<float> expected_logits(const FakeModelConfig& config, std::span<const int32_t> history);
/// The expected tokens of a sample of the request, which may have a canvas, from its first
/// generated token, and how it ends.
struct Expected {
  std::vector<int32_t> tokens;
  engine::FinishReason reason = engine::FinishReason::kLength;
};
Expected expected_tokens(const FakeModelConfig& config, const engine::Request& request,
                         int32_t sample);

}  // namespace hearth::tests
