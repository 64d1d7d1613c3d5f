#pragma once
// Checks that a model in stages gives certain tokens: alone, batched, at any chunk size, with its
// prefix cached, preempted, after a cancelled prompt, with drafts.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tests/golden/engine/engine_run.h"

namespace hearth::golden {

/// Tokens that requests are made of.
inline constexpr int32_t kStagesVocab = 128;

engine::EngineConfig stages_config();
engine::Request stages_request(engine::RequestId id, int32_t prompt_size, uint32_t seed);

/// A model in stages and the table of its engine.
struct StagedRun {
  std::unique_ptr<models::Model> model;
  kernels::OpTable table;
};
struct StagedSource {
  std::string name;
  std::function<StagedRun()> load;  ///< anew for each run
  int32_t rows = 150;               ///< of the longest prompts, about
  EngineRun run(const engine::EngineConfig& config,
                std::unique_ptr<engine::Proposer> proposer = nullptr) const;
};

using AskOne = std::function<std::vector<std::vector<int32_t>>(const engine::Request&)>;
/// `ask_one`: the tokens wanted.
void check_stages(const StagedSource& staged, const AskOne& ask_one);

}  // namespace hearth::golden
