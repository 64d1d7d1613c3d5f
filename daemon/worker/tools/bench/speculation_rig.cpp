#include "daemon/worker/tools/bench/speculation_rig.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "daemon/worker/tools/stop_flag.h"
#include "engine/speculation/script_proposer.h"
#include "kernels/base/numbers.h"

namespace hearth::worker {
namespace {

size_t num_batches(const SpeculationAsk& ask) {
  const size_t each = ask.sequences;
  return (ask.prompts.size() + each - 1) / each;
}

}  // namespace

engine::EngineConfig speculation_config(const SpeculationAsk& ask, const models::ModelInfo& info,
                                        kernels::KvTypes kv_type) {
  engine::EngineConfig config;
  config.kv_type = kv_type;
  config.prefix_cache = false;  // caching would falsify the measurement
  config.scheduler.max_seqs = ask.sequences;
  size_t longest = 0;
  for (const std::vector<int32_t>& prompt : ask.prompts) longest = std::max(longest, prompt.size());
  // Room for the engine's warm-up too.
  constexpr int32_t kWarmUp = 128;
  const auto wanted = std::max(narrow<int32_t>(longest) + ask.tokens, kWarmUp);
  config.context_length = std::min(info.context_length, wanted);
  const int64_t blocks =
      ask.sequences * ((config.context_length + config.block_size - 1) / config.block_size + 1);
  config.kv_bytes = engine::kv_bytes_for(info, config, blocks);
  config.speculation.fixed_width = ask.width;
  config.speculation.max_rivals = ask.rivals;
  return config;
}

Result<std::unique_ptr<SpeculationRig>> SpeculationRig::create(
    const SpeculationAsk& ask, engine::EngineConfig config, const kernels::OpTable& ops,
    std::unique_ptr<models::Model> model, std::unique_ptr<models::Model> draft,
    std::optional<engine::ReplayPattern> pattern) {
  std::unique_ptr<SpeculationRig> rig(new SpeculationRig);
  rig->ask_ = ask;
  const int32_t vocab = model->info().vocab_size;
  config.speculation.lookup = !pattern.has_value();
  std::unique_ptr<engine::Proposer> proposer;
  if (draft != nullptr) {
    config.speculation.draft_kv_bytes =
        speculation_config(ask, draft->info(), config.kv_type).kv_bytes;
    HEARTH_ASSIGN_OR_RETURN(
        std::unique_ptr<engine::DraftModel> made,
        engine::DraftModel::create(config, model->info(), ops, std::move(draft), rig->clock_));
    rig->draft_ = made.get();
    proposer = std::move(made);
  }
  if (pattern.has_value()) {
    rig->script_ = std::make_unique<engine::ReplayScript>(std::move(*pattern), vocab);
    if (rig->draft_ != nullptr) {
      rig->draft_->replay(rig->script_.get());
    } else if (!model->info().drafts) {
      proposer = std::make_unique<engine::ScriptProposer>(*rig->script_);
    }
  }
  HEARTH_ASSIGN_OR_RETURN(rig->engine_, engine::Engine::create(config, ops, std::move(model),
                                                               rig->clock_, std::move(proposer)));
  if (rig->script_ != nullptr) rig->engine_->replay_drafts(*rig->script_);
  rig->engine_->warm_up();
  return rig;
}

Result<void> SpeculationRig::take_events(std::map<engine::RequestId, Stream>* streams) {
  const int64_t now_us = clock_.now_us();
  for (const auto& events : engine_->outbox().drain()) {
    for (const engine::EngineEvent& event : events) {
      if (const auto* token = std::get_if<engine::TokenEvent>(&event)) {
        (*streams)[token->id].tokens.push_back(token->token);
        (*streams)[token->id].at_us.push_back(now_us);
      } else if (const auto* failed = std::get_if<engine::RequestFailedEvent>(&event)) {
        return failed->error;
      }
    }
  }
  if (stop_wanted()) return Error::cancelled("interrupted");
  return {};
}

Result<SpeculationRig::Timed> SpeculationRig::run(size_t batch, bool speculate) {
  std::map<engine::RequestId, Stream> streams;
  const size_t begin = batch * ask_.sequences;
  const size_t end = std::min(ask_.prompts.size(), begin + ask_.sequences);
  const engine::RequestId first_id = next_id_;
  for (size_t i = begin; i < end; ++i) {
    engine::Request request;
    request.id = next_id_++;
    request.owner = "bench";
    request.prompt = ask_.prompts[i];
    request.stop_ids = ask_.stop_ids;
    request.max_tokens = ask_.tokens;
    request.sampling.temperature = ask_.temperature;
    request.sampling.seed = i + 1;
    request.speculate = speculate;
    streams[request.id];
    if (speculate && script_ != nullptr) script_->know(request.id, 0, plain_.at(i));
    engine_->inbox().post(std::move(request));
  }
  while (engine_->step()) {
    HEARTH_TRY(take_events(&streams));
  }
  HEARTH_TRY(take_events(&streams));

  int64_t begin_us = 0, end_us = 0;
  for (auto& [id, stream] : streams) {
    if (stream.tokens.empty()) return Error::internal("a prompt had no answer");
    begin_us = std::max(begin_us, stream.at_us.front());
    end_us = std::max(end_us, stream.at_us.back());
    const size_t i = begin + (id - first_id);
    if (plain_.size() == i) plain_.push_back(stream.tokens);
    if (plain_.at(i) != stream.tokens) {
      return Error::internal(
          fmt::format("prompt {} got another text {} drafts", i, speculate ? "with" : "without"));
    }
  }
  Timed out;
  for (const auto& [id, stream] : streams) {
    out.tokens += as_double(std::ranges::count_if(
        stream.at_us, [begin_us](int64_t at_us) { return at_us > begin_us; }));
  }
  out.seconds = as_double(end_us - begin_us) * 1e-6;
  return out;
}

Result<void> SpeculationRig::round(SpeculationReport* report) {
  Timed plain, drafted;
  const auto add = [](Timed* total, const Timed& part) {
    total->tokens += part.tokens;
    total->seconds += part.seconds;
  };
  for (size_t batch = 0; batch < num_batches(ask_); ++batch) {
    // The first round must begin with the plain run; later rounds alternate.
    const bool swapped = rounds_ > 0 && (rounds_ + batch) % 2 != 0;
    for (const bool speculate : {swapped, !swapped}) {
      HEARTH_ASSIGN_OR_RETURN(const Timed timed, run(batch, speculate));
      add(speculate ? &drafted : &plain, timed);
    }
  }
  if (plain.seconds <= 0 || drafted.seconds <= 0) {
    return Error::internal("no step was measured");
  }
  if (rounds_++ == 0) return {};
  report->plain_tokens_per_s.push_back(plain.tokens / plain.seconds);
  report->drafted_tokens_per_s.push_back(drafted.tokens / drafted.seconds);
  report->saved_s += plain.seconds - drafted.seconds;
  report->ratios.push_back(report->drafted_tokens_per_s.back() / report->plain_tokens_per_s.back());
  return {};
}

void SpeculationRig::finish(SpeculationReport* report) const {
  report->counts = engine_->snapshot().speculation;
  report->draft_step_us =
      draft_ != nullptr ? draft_->propose_us(1, 1).value_or(0) : engine_->draft_us();
  const auto& drafted = report->counts.drafted_at;
  for (size_t i = 0; i <= drafted.size() && (i == 0 || drafted[i - 1] > 0); ++i) {
    report->step_us.push_back(engine_->step_us(ask_.sequences + narrow<int32_t>(i)));
  }
}

}  // namespace hearth::worker
