#pragma once
// A small model that drafts for a large one: same vocabulary, its own device memory, KV pools and
// prefix index. It drafts for all sequences together, and draws with the request's own sampling and
// noise, so that it drafts the target's tokens wherever the two models agree.
//
// Each sequence has a shadow here. A shadow's KV covers the target's tokens and draft tokens after
// them; accepted ones stay, others are overwritten. Only the target's tokens are indexed. A shadow
// that lacks rows (a long prompt, or a sequence that another proposer drafted for) catches up in
// chunks within the time it is given, and drafts nothing meanwhile. When the pools are full, the
// shadows that have been unused longest are dropped, then those of the youngest requests.
//
// The state of a shadow of a model with states is that of the target's tokens. Rows of draft tokens
// change no state (kernels/ops/recurrent_ops.h), so each round computes all of a step's draft
// tokens again, and the accepted ones are computed once more with the target's next token: a few
// rows, which cost a small model little.
//
// Owned by the engine thread.

#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/cost/step_cost.h"
#include "engine/kv/elastic_pools.h"
#include "engine/kv/kv_cache.h"
#include "engine/sampling/sampler.h"
#include "engine/speculation/proposer.h"
#include "engine/speculation/replay_pattern.h"
#include "engine/steps/model_runner.h"
#include "kernels/base/clock.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::engine {

/// kInvalidArgument with the first difference: every id must mean the same bytes and the same kind
/// of token in both models.
Result<void> check_same_tokens(const models::Tokenizer& target, const models::Tokenizer& draft);

/// The memory that a draft model takes in addition to its weights: `config` is the engine's,
/// `draft` the model with its sizes. kOutOfMemory with the numbers.
Result<MemoryPlan> plan_draft_memory(const EngineConfig& config, const models::ModelInfo& target,
                                     const models::Model& draft, uint64_t device_free_bytes);

class DraftModel final : public Proposer {
 public:
  /// `config`: the engine's; pools of speculation.draft_kv_bytes. kInvalidArgument if the
  /// vocabularies differ in size; kOutOfMemory with the numbers.
  static Result<std::unique_ptr<DraftModel>> create(const EngineConfig& config,
                                                    const models::ModelInfo& target,
                                                    kernels::OpTable ops,
                                                    std::unique_ptr<models::Model> model,
                                                    const Clock& clock);

  /// From now on it drafts what the script has, if the script knows the text, at its own cost in
  /// time: for measurements. The script outlives it.
  void replay(const ReplayScript* script) { script_ = script; }

  DraftedBy kind() const override { return DraftedBy::kDraftModel; }
  bool free() const override { return false; }
  void propose(std::span<Draft* const> drafts, double catch_up_us) override;
  std::optional<double> propose_us(int32_t sequences, int32_t tokens) const override;
  void forget(const Sequence& seq) override;
  ElasticPools* pools() override { return &pools_; }
  void check_integrity() const override;

  const models::ModelInfo& info() const { return runner_->info(); }
  const MemoryPlan& memory_plan() const { return runner_->memory_plan(); }
  size_t num_shadows() const { return shadows_.size(); }
  int32_t blocks_used() const { return kv_.pool(0).num_used(); }

 private:
  struct Shadow {
    Sequence seq;             ///< its tokens: the target's, then draft tokens
    SamplingParams sampling;  ///< the request's, without logprobs
    int32_t confirmed = 0;    ///< tokens that are the target's
    int32_t computed = 0;     ///< positions with KV, draft tokens included
    uint64_t last_asked = 0;
    uint64_t last_step = 0;  ///< that it had rows in
    int32_t wanted = 0;      ///< draft tokens, in this call
    Draft* draft = nullptr;  ///< of this call
  };

  DraftModel(std::unique_ptr<ModelRunner> runner, const Clock& clock);
  Shadow& shadow_of(const Sequence& seq);
  void begin(Shadow& shadow);
  void follow(Shadow& shadow, const Sequence& seq);
  Shadow* droppable_for(const Shadow& shadow) const;
  bool reserve(Shadow& shadow, int32_t num_tokens, int32_t num_drafted);
  void begin_step();
  bool add_rows(Shadow& shadow, int32_t end, bool output);
  bool add_draft_rows(Shadow& shadow);
  bool plan_rows(Shadow& shadow, const PlannedRows& rows);
  void catch_up(std::span<Shadow* const> late, double budget_us);
  /// Computes the planned rows; returns the time it took, in us.
  int64_t run_step();
  bool draw(Shadow& shadow, int32_t output_row);

  std::unique_ptr<ModelRunner> runner_;
  KvCache kv_;
  ElasticPools pools_;
  Sampler sampler_;
  const Clock& clock_;
  const ReplayScript* script_ = nullptr;
  StepCost cost_;
  double overhead_us_ = 0;  ///< of a call, in addition to its plain steps: missed rows, bookkeeping
  std::unordered_map<const Sequence*, std::unique_ptr<Shadow>> shadows_;
  uint64_t calls_ = 0;
  uint64_t steps_ = 0;
  const bool has_states_;
  int32_t kept_rows_ = 0;  ///< of this step's drafts
  StepPlan plan_;
  std::vector<Shadow*> active_, behind_, in_step_;  ///< scratch
};

}  // namespace hearth::engine
