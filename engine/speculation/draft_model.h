#pragma once
// A small model guesses for a large one: same vocabulary, its own device memory, KV pools and
// prefix index, drafting for all sequences together. Its guesses are drawn with the request's own
// sampling and noise, so that two models that agree say the same.
//
// Each sequence has a shadow here. What a shadow's KV holds beyond the target's tokens are guesses:
// those that came true stay, the others are overwritten; only the target's own tokens are indexed.
// A shadow that is behind (a long prompt, a sequence guessed by others for a while) catches up in
// chunks within the time that is given for it, and guesses nothing meanwhile. Where its pools are
// full, shadows that were not asked for longest are dropped, then those of the youngest requests.
//
// Owned by the engine thread.

#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/cost/step_cost.h"
#include "engine/kv/kv_cache.h"
#include "engine/sampling/sampler.h"
#include "engine/speculation/proposer.h"
#include "engine/speculation/replay_pattern.h"
#include "engine/steps/model_runner.h"
#include "kernels/base/clock.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::engine {

/// kInvalidArgument with the first difference: every id must mean the same bytes and the same kind
/// of token, or a guess would mean something else.
Result<void> check_same_tokens(const models::Tokenizer& target, const models::Tokenizer& draft);

/// What a draft model takes beside its weights: `config` is the engine's, `draft` the model with
/// its sizes. kOutOfMemory with the numbers.
Result<MemoryPlan> plan_draft_memory(const EngineConfig& config, const models::ModelInfo& target,
                                     const models::Model& draft, uint64_t device_free_bytes);

class DraftModel final : public Proposer {
 public:
  /// `config`: the engine's; pools of speculation.draft_kv_bytes. kInvalidArgument where the
  /// vocabularies differ in size; kOutOfMemory with the numbers.
  static Result<std::unique_ptr<DraftModel>> create(const EngineConfig& config,
                                                    const models::ModelInfo& target,
                                                    kernels::OpTable ops,
                                                    std::unique_ptr<models::Model> model,
                                                    const Clock& clock);

  /// From now on it says what the script says where that is known, and takes as long as it takes:
  /// for measurements. The script outlives it.
  void replay(const ReplayScript* script) { script_ = script; }

  std::string_view name() const override { return "draft"; }
  bool free() const override { return false; }
  void propose(std::span<Draft* const> drafts, double catch_up_us) override;
  std::optional<double> propose_us(int32_t sequences, int32_t tokens) const override;
  void forget(const Sequence& seq) override;
  void check_integrity() const override;

  const models::ModelInfo& info() const { return runner_->info(); }
  const MemoryPlan& memory_plan() const { return runner_->memory_plan(); }
  size_t num_shadows() const { return shadows_.size(); }
  int32_t blocks_used() const { return kv_.pool(0).num_used(); }

 private:
  struct Shadow {
    Sequence seq;             ///< its tokens: the target's, then guesses
    SamplingParams sampling;  ///< the request's, without logprobs
    int32_t confirmed = 0;    ///< tokens that are the target's
    int32_t computed = 0;     ///< positions with KV, guesses included
    uint64_t last_asked = 0;
    uint64_t last_step = 0;  ///< that it had rows in
    int32_t wanted = 0;      ///< guesses, in this call
  };

  DraftModel(std::unique_ptr<ModelRunner> runner, std::vector<KvGroup> groups, const Clock& clock);
  Shadow& shadow_of(const Sequence& seq);
  void begin(Shadow& shadow);
  void follow(Shadow& shadow, const Sequence& seq);
  Shadow* droppable_for(const Shadow& shadow) const;
  bool reserve(Shadow& shadow, int32_t num_tokens);
  void begin_step();
  bool add_rows(Shadow& shadow, int32_t end, bool output);
  void catch_up(std::span<Shadow* const> behind, double budget_us);
  /// One step of the planned rows; returns what it took.
  int64_t run_step();
  bool draw(Shadow& shadow, int32_t output_row);

  std::unique_ptr<ModelRunner> runner_;
  KvCache kv_;
  Sampler sampler_;
  const Clock& clock_;
  const ReplayScript* script_ = nullptr;
  StepCost cost_;
  double overhead_us_ = 0;  ///< of a call beyond its plain steps: rows that it missed, bookkeeping
  std::unordered_map<const Sequence*, std::unique_ptr<Shadow>> shadows_;
  uint64_t calls_ = 0;
  uint64_t steps_ = 0;
  StepPlan plan_;
  std::vector<Shadow*> active_, behind_, in_step_;  ///< scratch
};

}  // namespace hearth::engine
