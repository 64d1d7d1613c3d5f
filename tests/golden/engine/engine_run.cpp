#include "tests/golden/engine/engine_run.h"

#include <doctest/doctest.h>

#include <string>

#include "models/staged_model.h"

namespace hearth::golden {

using namespace engine;

EngineRun::EngineRun(const models::GgufFile& file, const kernels::OpTable& ops,
                     const EngineConfig& config, std::unique_ptr<Proposer> proposer,
                     const models::LoadOptions& options) {
  auto model = models::load_model(file, ops, nullptr, options);
  REQUIRE_MESSAGE(model.ok(), (model.ok() ? "" : model.error().message));
  create(std::move(model).value(), ops, config, std::move(proposer));
}

EngineRun::EngineRun(std::unique_ptr<models::Model> model, const kernels::OpTable& ops,
                     const EngineConfig& config, std::unique_ptr<Proposer> proposer) {
  create(std::move(model), ops, config, std::move(proposer));
}

void EngineRun::create(std::unique_ptr<models::Model> model, const kernels::OpTable& ops,
                       const EngineConfig& config, std::unique_ptr<Proposer> proposer) {
  auto made = Engine::create(config, ops, std::move(model), clock_, std::move(proposer));
  REQUIRE_MESSAGE(made.ok(), (made.ok() ? "" : made.error().message));
  engine_ = std::move(made).value();
}

void EngineRun::submit(const Request& request) {
  EngineAnswer& answer = answers_[request.id] = EngineAnswer{};
  answer.tokens = request.resume;
  answer.tokens.resize(static_cast<size_t>(request.n));
  answer.logprobs.resize(static_cast<size_t>(request.n));
  post(request);
}

bool EngineRun::step() {
  const bool computed = engine_->step();
  engine_->check_integrity();
  for (const std::vector<EngineEvent>& events : engine_->outbox().drain()) {
    for (const EngineEvent& event : events) {
      if (const auto* token = std::get_if<TokenEvent>(&event)) {
        auto& tokens = answers_.at(token->id).tokens.at(static_cast<size_t>(token->sample));
        REQUIRE(token->index == static_cast<int32_t>(tokens.size()));
        tokens.push_back(token->token);
        if (token->logprob.has_value()) {
          answers_.at(token->id).logprobs[static_cast<size_t>(token->sample)].push_back(
              *token->logprob);
        }
      } else if (const auto* done = std::get_if<RequestDoneEvent>(&event)) {
        EngineAnswer& answer = answers_.at(done->id);
        REQUIRE_FALSE(answer.ended);
        answer.ended = true;
        answer.cached_tokens = done->cached_tokens;
        answer.preemptions = done->preemptions;
      } else if (const auto* failed = std::get_if<RequestFailedEvent>(&event)) {
        EngineAnswer& answer = answers_.at(failed->id);
        REQUIRE_FALSE(answer.ended);
        answer.ended = answer.failed = true;
        MESSAGE("request " << failed->id << ": " << failed->error.message);
      }
    }
  }
  return computed;
}

void EngineRun::run_until_idle() {
  while (step()) {
  }
}

EngineAnswer EngineRun::ask(const Request& request) {
  submit(request);
  run_until_idle();
  REQUIRE(answer(request.id).ended);
  REQUIRE_FALSE(answer(request.id).failed);
  return answer(request.id);
}

Result<std::unique_ptr<models::Model>> load_in_stages(const models::GgufFile& file,
                                                      const NamedTable& table, int32_t count) {
  HEARTH_ASSIGN_OR_RETURN(const auto whole, models::load_model(file, table.ops, nullptr));
  const int32_t layers = whole->info().num_layers;
  std::vector<models::Stage> stages;
  for (int32_t i = 0; i < count; ++i) {
    models::Stage stage;
    stage.table = {"stage " + std::to_string(i), table.ops, nullptr};
    stage.layers = {layers * i / count, layers * (i + 1) / count};
    if (i > 0) {
      stage.table.thread = std::make_shared<kernels::OpThread>();
      if (table.name == "reference") {
        stage.table.ops = kernels::reference_ops();
      } else {
        HEARTH_ASSIGN_OR_RETURN(stage.table.ops,
                                kernels::cpu_ops({.num_threads = 1, .variant = table.name}));
      }
    }
    stages.push_back(std::move(stage));
  }
  return models::load_staged_model(file, std::move(stages), nullptr);
}

}  // namespace hearth::golden
