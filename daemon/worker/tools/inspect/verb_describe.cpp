// hearth-worker-<device> describe FILE: the facts that the broker lists for a model that was never
// loaded.

#include <filesystem>
#include <memory>

#include "daemon/worker/load/measuring_ops.h"
#include "daemon/worker/load/sampling_defaults.h"
#include "daemon/worker/tools/command_line.h"
#include "daemon/worker/tools/verbs.h"
#include "ipc/wire/worker_codec.h"
#include "models/answer/answer_format.h"
#include "models/gguf/gguf_file.h"
#include "models/model.h"
#include "models/template/chat_template.h"
#include "models/weights/file_info.h"

namespace hearth::worker {
namespace {

/// See ipc::ModelEntry.
std::vector<std::string> abilities(const models::ModelInfo& info,
                                   const models::ChatTemplates& templates) {
  const bool ranks = info.pooling == models::Pooling::kRank;
  if (!info.generates) return {ranks ? "scores" : "vectors"};
  std::vector<std::string> out = {"text"};
  const models::AnswerFormat format = models::find_answer_format(templates, true, {});
  if (format.tools != nullptr) out.emplace_back("tools");
  if (format.channels || !format.reasoning.empty()) out.emplace_back("reasoning");
  if (info.pooling != models::Pooling::kNone) out.emplace_back(ranks ? "scores" : "vectors");
  return out;
}

Result<void> describe(const std::filesystem::path& path) {
  HEARTH_ASSIGN_OR_RETURN(models::GgufFile file, models::GgufFile::open(path));
  file.set_fingerprint("-");  // a real one would require reading the whole file
  HEARTH_ASSIGN_OR_RETURN(const models::ModelInfo info, models::describe_file(file));
  const models::ChatTemplates templates = models::ChatTemplates::load(file);
  ipc::FileFacts facts{.architecture = info.architecture,
                       .file_type = info.file_type,
                       .num_parameters = info.num_parameters,
                       .sampling = sampling_of_file(file),
                       .chat_template = !templates.empty(),
                       .abilities = abilities(info, templates)};
  const auto model = models::load_model(file, measuring_ops(), nullptr);
  if (model.ok()) facts.context_length = (*model)->info().context_length;
  write_stdout(ipc::encode_file_facts(facts) + "\n");
  return {};
}

}  // namespace

void add_describe(Verb program) {
  const auto path = std::make_shared<std::filesystem::path>();
  Verb verb = program.verb("describe", "One line of JSON about a model file, for the daemon");
  verb.option("FILE", *path, "a .gguf file").required();
  verb.run([path] {
    const Result<void> done = describe(*path);
    return done.ok() ? 0 : report_failure(done.error());
  });
}

}  // namespace hearth::worker
