// hearth bench --speculate: compares decoding with and without drafts.

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "daemon/worker/tools/bench/bench_rig.h"
#include "daemon/worker/tools/bench/speculation_rig.h"
#include "daemon/worker/tools/bench/verb_bench.h"
#include "daemon/worker/tools/progress_line.h"
#include "daemon/worker/tools/stop_flag.h"
#include "ipc/files/model_file.h"
#include "ipc/text/shown_text.h"
#include "kernels/base/numbers.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::worker {
namespace {

constexpr const char* kTales[] = {
    "Once upon a time there was a king who had three sons.",
    "There was once a poor woodcutter who lived at the edge of a great forest",
    "Long ago, in a land beyond the sea, an old woman",
    "A fox once met a hare upon the road, and said",
    "In the days when wishing still helped one, there lived a princess",
    "The youngest brother set out into the wide world, and when night fell",
    "Far away under the mountain there dwelt a dwarf who",
    "One winter's evening a little girl knocked at the door of a cottage.",
};
constexpr int32_t kRandomPrompt = 32;  ///< tokens

std::vector<int32_t> random_prompt(int32_t number, int32_t vocab) {
  std::vector<int32_t> out;
  for (int32_t i = 0; i < kRandomPrompt; ++i) {
    out.push_back(narrow<int32_t>((int64_t{number} * 7919 + int64_t{i} * 104'729) % vocab));
  }
  return out;
}

struct Draft {
  std::string name;
  std::optional<BenchModel> model;  ///< no value: no draft model
};

/// The target's tokenizer; if there is a draft file, its tokens must be the same.
Result<std::unique_ptr<models::Tokenizer>> shared_tokenizer(const std::filesystem::path& target,
                                                            const std::filesystem::path& draft) {
  HEARTH_ASSIGN_OR_RETURN(const models::GgufFile file, models::GgufFile::open(target));
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<models::Tokenizer> tokenizer,
                          models::load_tokenizer(file));
  if (draft.empty()) return tokenizer;
  HEARTH_ASSIGN_OR_RETURN(const models::GgufFile other, models::GgufFile::open(draft));
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<models::Tokenizer> theirs,
                          models::load_tokenizer(other));
  HEARTH_TRY(engine::check_same_tokens(*tokenizer, *theirs));
  return tokenizer;
}

bool is_shape(const std::string& name) {
  return std::ranges::any_of(models::named_shapes(),
                             [&](const models::ModelShape& shape) { return shape.name == name; });
}

/// A random draft with the target's vocabulary: for a random target, or with replayed drafts.
Result<Draft> random_draft(const BenchOptions& options, int32_t vocab) {
  HEARTH_ASSIGN_OR_RETURN(models::ModelShape shape, models::find_shape(options.draft));
  shape.vocab = vocab;
  HEARTH_ASSIGN_OR_RETURN(models::RandomModel random,
                          models::RandomModel::create(shape, options.draft_type, options.seed + 1));
  HEARTH_ASSIGN_OR_RETURN(BenchModel model, BenchModel::make(std::move(random)));
  return Draft{fmt::format("random {} {}", options.draft, options.draft_type), std::move(model)};
}

Result<std::vector<std::vector<int32_t>>> prompts_for(const BenchOptions& options,
                                                      const models::Tokenizer* tokenizer,
                                                      int32_t vocab) {
  std::vector<std::vector<int32_t>> out;
  if (tokenizer == nullptr) {
    if (!options.prompt.empty()) {
      return Error::invalid("--prompt: random weights know no words", "prompt");
    }
    for (int32_t i = 0; i < options.sequences; ++i) out.push_back(random_prompt(i, vocab));
    return out;
  }
  if (!options.prompt.empty()) {
    out.assign(options.sequences, tokenizer->encode(options.prompt, {}));
    return out;
  }
  // All tales, repeated to fill the last batch.
  const size_t wanted = std::max<size_t>(std::size(kTales), options.sequences);
  for (size_t i = 0; i < wanted; ++i) {
    out.push_back(tokenizer->encode(kTales[i % std::size(kTales)], {}));
  }
  return out;
}

std::string proposer_name(const BenchOptions& options, const Draft& draft) {
  std::string out = options.replay.empty() ? "lookup" : "replay " + options.replay;
  if (draft.model.has_value()) out += fmt::format(" and {}", draft.name);
  return out;
}

}  // namespace

Result<SpeculationReport> run_speculation(const BenchOptions& options,
                                          const kernels::OpTable& ops) {
  ProgressLine progress;
  std::optional<engine::ReplayPattern> pattern;
  if (!options.replay.empty()) {
    HEARTH_ASSIGN_OR_RETURN(pattern, engine::ReplayPattern::parse(options.replay));
  }
  HEARTH_ASSIGN_OR_RETURN(const kernels::KvTypes kv_type, parse_kv_type(options.kv_type));
  const bool draft_layer = options.draft == ipc::kDraftLayerName;
  std::filesystem::path target;
  DraftChoice choice;
  if (options.shape.empty()) {
    HEARTH_ASSIGN_OR_RETURN(target, ipc::find_model_file(options.file));
    if (!is_shape(options.draft)) choice = choose_draft(options.draft, target);
  }
  std::optional<models::GgufFile> heads;
  if (choice.heads) {
    HEARTH_ASSIGN_OR_RETURN(heads, models::GgufFile::open(choice.path));
  }
  HEARTH_ASSIGN_OR_RETURN(
      const BenchModel source,
      BenchModel::find(options.file, options.shape, options.type, options.seed,
                       {.draft_layer = draft_layer, .heads = heads ? &*heads : nullptr}));
  const models::ModelInfo& info = source.measured().info();
  if (draft_layer && !info.drafts) {
    return Error::invalid("--draft mtp: the model has no layer for drafting", "draft");
  }

  Draft draft;
  std::unique_ptr<models::Tokenizer> tokenizer;
  std::filesystem::path draft_path;
  if (is_shape(options.draft)) {
    HEARTH_ASSIGN_OR_RETURN(draft, random_draft(options, info.vocab_size));
  } else if (!target.empty()) {
    if (!choice.heads) draft_path = choice.path;
  } else if (options.draft != "auto" && options.draft != "none" && !draft_layer) {
    return Error::invalid("--draft: random weights want a shape's name, mtp, auto or none",
                          "draft");
  }
  if (!draft_path.empty()) {
    HEARTH_ASSIGN_OR_RETURN(draft.model, BenchModel::open(draft_path));
    draft.name = draft.model->name();
  }
  if (!target.empty()) {
    HEARTH_ASSIGN_OR_RETURN(tokenizer, shared_tokenizer(target, draft_path));
  }

  SpeculationAsk ask;
  ask.sequences = options.sequences;
  ask.tokens = options.tokens;
  ask.width = options.width;
  ask.rivals = options.rivals;
  ask.temperature = options.temperature >= 0 ? options.temperature : target.empty() ? 0.8f : 0.0f;
  HEARTH_ASSIGN_OR_RETURN(ask.prompts, prompts_for(options, tokenizer.get(), info.vocab_size));
  for (int32_t id = 0; tokenizer != nullptr && id < tokenizer->vocab_size(); ++id) {
    if (tokenizer->is_end_of_generation(id)) ask.stop_ids.push_back(id);
  }
  const engine::EngineConfig config = speculation_config(ask, info, kv_type);

  HEARTH_ASSIGN_OR_RETURN(
      const engine::MemoryPlan plan,
      engine::plan_memory(config, source.measured(), ops.device.memory_free_bytes));
  uint64_t weights = source.weight_bytes();
  uint64_t scratch = source.scratch_bytes();
  if (draft.model.has_value()) {
    weights += draft.model->weight_bytes();
    scratch = std::max(scratch, draft.model->scratch_bytes());
  }
  HEARTH_TRY(check_memory(weights, plan.total_bytes(), scratch, ops.device.memory_free_bytes));
  progress.stage(fmt::format("loading {}", ipc::human_bytes(weights)));
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<models::Model> model, source.load(ops, nullptr));
  std::unique_ptr<models::Model> draft_model;
  if (draft.model.has_value()) {
    HEARTH_ASSIGN_OR_RETURN(draft_model, draft.model->load(ops, nullptr));
  }

  SpeculationReport report;
  report.model = target.empty() ? "random " + options.shape : source.name();
  report.type = info.file_type;
  report.device = fmt::format("{} {}", ops.device.name, ops.device.variant);
  report.threads = ops.device.num_threads;
  report.proposer = proposer_name(options, draft);
  if (draft_layer) report.proposer += " and mtp";
  if (choice.heads) report.proposer += fmt::format(" and {}", heads->name());
  report.sequences = ask.sequences;
  report.tokens = ask.tokens;
  report.width = ask.width;
  report.temperature = ask.temperature;
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<SpeculationRig> rig,
                          SpeculationRig::create(ask, config, ops, std::move(model),
                                                 std::move(draft_model), std::move(pattern)));
  const int32_t rounds = options.rounds > 0 ? options.rounds : options.quick ? 3 : 5;
  for (int32_t round = 0; round <= rounds; ++round) {
    progress.stage(round == 0 ? "warming up" : fmt::format("round {} of {}", round, rounds));
    HEARTH_TRY(rig->round(&report));
  }
  rig->finish(&report);
  return report;
}

}  // namespace hearth::worker
