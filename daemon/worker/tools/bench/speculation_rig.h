#pragma once
// An engine in this process whose requests are decoded with guesses and without, in turn, so that a
// machine with other work meets both. What is said is compared: a difference is an error.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/worker/tools/bench/speculation_report.h"
#include "engine/engine.h"
#include "engine/speculation/draft_model.h"
#include "engine/speculation/replay_pattern.h"
#include "kernels/base/clock.h"

namespace hearth::worker {

/// What is asked, for each sequence.
struct SpeculationAsk {
  std::vector<std::vector<int32_t>> prompts;  ///< as many batches as hold all of them
  std::vector<int32_t> stop_ids;
  int32_t sequences = 1;  ///< of a batch
  int32_t tokens = 128;
  float temperature = 0;
  int32_t width = 0;  ///< guesses verified per step; 0: as many as pay
};

/// Engine settings for it: contexts and KV for one batch, no prefix cache.
engine::EngineConfig speculation_config(const SpeculationAsk& ask, const models::ModelInfo& info,
                                        kernels::DType kv_type);

class SpeculationRig {
 public:
  /// `draft`, may be null: guesses beside lookup. `pattern`: guesses are those of the plain run,
  /// spoiled, in the place of lookup's; by the draft model, if there is one, at its cost.
  static Result<std::unique_ptr<SpeculationRig>> create(
      const SpeculationAsk& ask, engine::EngineConfig config, const kernels::OpTable& ops,
      std::unique_ptr<models::Model> model, std::unique_ptr<models::Model> draft,
      std::optional<engine::ReplayPattern> pattern);

  /// One round of all batches, appended to the report. The first call's is thrown away: it learns
  /// what the texts are. kCancelled when a signal came, kInternal where a text differed.
  Result<void> round(SpeculationReport* report);
  /// Counts and step costs so far.
  void finish(SpeculationReport* report) const;

 private:
  struct Stream {
    std::vector<int32_t> tokens;
    std::vector<int64_t> at_us;
  };
  /// From the last first token to the last token of all.
  struct Timed {
    double tokens = 0;
    double seconds = 0;
  };
  SpeculationRig() = default;
  Result<Timed> run(size_t batch, bool speculate);
  Result<void> take_events(std::map<engine::RequestId, Stream>* streams);

  SpeculationAsk ask_;
  SteadyClock clock_;
  std::unique_ptr<engine::ReplayScript> script_;  ///< null: none; outlives the engine
  engine::DraftModel* draft_ = nullptr;           ///< the engine's; null: none
  std::unique_ptr<engine::Engine> engine_;
  engine::RequestId next_id_ = 1;
  std::vector<std::vector<int32_t>> plain_;  ///< what each prompt's plain run said
  int32_t rounds_ = 0;
};

}  // namespace hearth::worker
