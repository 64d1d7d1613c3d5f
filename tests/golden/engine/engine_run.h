#pragma once
// An engine with a real model, run to its end in the test's thread.

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "kernels/ops.h"
#include "models/gguf/gguf_file.h"
#include "models/model.h"
#include "tests/golden/step_runner.h"

namespace hearth::golden {

/// The output of one request.
struct EngineAnswer {
  std::vector<std::vector<int32_t>> tokens;  ///< per sample
  std::vector<std::vector<float>> logprobs;  ///< likewise; empty if not requested
  int32_t cached_tokens = 0;
  int32_t preemptions = 0;
  bool ended = false;
  bool failed = false;
};

class EngineRun {
 public:
  /// Fails the test if the model or the engine cannot be created.
  EngineRun(const models::GgufFile& file, const kernels::OpTable& ops,
            const engine::EngineConfig& config,
            std::unique_ptr<engine::Proposer> proposer = nullptr,
            const models::LoadOptions& options = {});
  EngineRun(std::unique_ptr<models::Model> model, const kernels::OpTable& ops,
            const engine::EngineConfig& config,
            std::unique_ptr<engine::Proposer> proposer = nullptr);

  void submit(const engine::Request& request);
  void post(engine::EngineCommand command) { engine_->inbox().post(std::move(command)); }
  /// False if there was nothing to compute. Checks integrity.
  bool step();
  void run_until_idle();
  /// Submits and runs to the end.
  EngineAnswer ask(const engine::Request& request);

  const EngineAnswer& answer(engine::RequestId id) const { return answers_.at(id); }
  engine::Engine& engine() { return *engine_; }

 private:
  void create(std::unique_ptr<models::Model> model, const kernels::OpTable& ops,
              const engine::EngineConfig& config, std::unique_ptr<engine::Proposer> proposer);

  SteadyClock clock_;
  std::unique_ptr<engine::Engine> engine_;
  std::map<engine::RequestId, EngineAnswer> answers_;
};

/// The model in `count` stages of about equally many layers: the first on `table`, the others on
/// tables of the same kind with a thread each. Errors as of load_staged_model.
Result<std::unique_ptr<models::Model>> load_in_stages(const models::GgufFile& file,
                                                      const NamedTable& table, int32_t count);

}  // namespace hearth::golden
