#pragma once
// Runs an engine in this process that decodes requests with drafts and without, in turn, so that
// other load on the machine affects both. The texts are compared: a difference is an error.

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

/// The workload.
struct SpeculationAsk {
  std::vector<std::vector<int32_t>> prompts;  ///< run in as many batches as needed
  std::vector<int32_t> stop_ids;
  int32_t sequences = 1;  ///< per batch
  int32_t tokens = 128;
  float temperature = 0;
  int32_t width = 0;  ///< drafted tokens verified per step; 0: as many as pay off
  int32_t rivals = engine::SpeculationConfig{}.max_rivals;
};

/// Engine settings for it: context and KV for one batch, no prefix cache.
engine::EngineConfig speculation_config(const SpeculationAsk& ask, const models::ModelInfo& info,
                                        kernels::KvTypes kv_type);

class SpeculationRig {
 public:
  /// `draft`, may be null: proposes in addition to lookup. `pattern`: instead of lookup, drafts are
  /// the plain run's tokens with errors added; if there is a draft model or the model has a
  /// draft layer, at its cost.
  static Result<std::unique_ptr<SpeculationRig>> create(
      const SpeculationAsk& ask, engine::EngineConfig config, const kernels::OpTable& ops,
      std::unique_ptr<models::Model> model, std::unique_ptr<models::Model> draft,
      std::optional<engine::ReplayPattern> pattern);

  /// Runs one round of all batches and appends it to the report. The first call's result is
  /// discarded: it learns the texts. kCancelled after a stop signal, kInternal if a text differed.
  Result<void> round(SpeculationReport* report);
  /// Counts and step costs so far.
  void finish(SpeculationReport* report) const;

 private:
  struct Stream {
    std::vector<int32_t> tokens;
    std::vector<int64_t> at_us;
  };
  /// From the last sequence's first token to the last token of all.
  struct Timed {
    double tokens = 0;
    double seconds = 0;
  };
  SpeculationRig() = default;
  Result<Timed> run(size_t batch, bool speculate);
  Result<void> take_events(std::map<engine::RequestId, Stream>* streams);

  SpeculationAsk ask_;
  SteadyClock clock_;
  std::unique_ptr<engine::ReplayScript> script_;  ///< null: no script; outlives the engine
  engine::DraftModel* draft_ = nullptr;           ///< the engine's; null: none
  std::unique_ptr<engine::Engine> engine_;
  engine::RequestId next_id_ = 1;
  std::vector<std::vector<int32_t>> plain_;  ///< output of each prompt's plain run
  int32_t rounds_ = 0;
};

}  // namespace hearth::worker
