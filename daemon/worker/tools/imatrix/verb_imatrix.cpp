// hearth imatrix MODEL -f TEXT -o FILE: how large the inputs of a model's matrices are over a text.

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "daemon/worker/load/device.h"
#include "daemon/worker/load/fingerprint_cache.h"
#include "daemon/worker/tools/command_line.h"
#include "daemon/worker/tools/imatrix/record_text.h"
#include "daemon/worker/tools/imatrix/recording_ops.h"
#include "daemon/worker/tools/progress_line.h"
#include "daemon/worker/tools/stop_flag.h"
#include "daemon/worker/tools/text_file.h"
#include "daemon/worker/tools/verbs.h"
#include "ipc/files/model_file.h"
#include "models/gguf/gguf_file.h"

namespace hearth::worker {
namespace {

struct ImatrixVerb {
  std::string model;
  std::string text;
  std::string out;
  bool force = false;
  RecordOptions record{.context = 0, .max_tokens = 0};
  DeviceOptions device;
};

struct Recorded {
  models::ImportanceSource source;
  std::vector<models::InputSums> sums;
};

Result<Recorded> run_imatrix(const ImatrixVerb& options) {
  std::error_code ignored;
  if (!options.force && std::filesystem::exists(options.out, ignored)) {
    return Error::invalid(fmt::format("{} is there already; --force writes over it", options.out),
                          "out");
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string text, read_text(options.text));
  HEARTH_ASSIGN_OR_RETURN(const kernels::OpTable device, open_device(options.device));
  HEARTH_ASSIGN_OR_RETURN(const auto path, ipc::find_model_file(options.model));
  HEARTH_ASSIGN_OR_RETURN(models::GgufFile file, models::GgufFile::open(path));
  ProgressLine progress;
  progress.stage("loading");
  // Computing the digest reads the whole file and refuses weights that are not finite.
  HEARTH_ASSIGN_OR_RETURN(std::string digest, computed_fingerprint(file));
  file.set_fingerprint(std::move(digest));
  InputRecorder recorder;
  const kernels::OpTable ops = recorder.record(device);
  HEARTH_ASSIGN_OR_RETURN(auto model, models::load_model(file, ops, nullptr));
  HEARTH_ASSIGN_OR_RETURN(const auto tokenizer, models::load_tokenizer(file));
  RecordOptions record = options.record;
  const int32_t most = model->info().context_length;
  if (record.context == 0) record.context = std::min(512, most);
  if (record.context > most) {
    return Error::invalid(fmt::format("--context {}: {} has {}", record.context, file.name(), most),
                          "context");
  }
  HEARTH_ASSIGN_OR_RETURN(
      const auto runner,
      LogitsRunner::create(std::move(model), ops, kernels::DType::kF16, record.context));
  progress.stage("recording");
  Recorded out;
  HEARTH_ASSIGN_OR_RETURN(
      out.source, record_text(*runner, *tokenizer, text, record, [&](int64_t done, int64_t total) {
        progress.detail(fmt::format("{} of {} tokens", done, total));
        return !stop_wanted();
      }));
  out.source.text = std::filesystem::path(options.text).filename().string();
  out.sums = recorder.sums();
  HEARTH_TRY(models::write_importance(options.out, out.sums, out.source));
  return out;
}

int imatrix(const ImatrixVerb& options) {
  catch_stop_signals();
  const Result<Recorded> done = run_imatrix(options);
  if (!done.ok()) return report_failure(done.error());
  int64_t experts = 0, unreached = 0;
  for (const models::InputSums& sums : done->sums) {
    if (sums.counts.size() == 1) continue;
    experts += std::ssize(sums.counts);
    unreached += std::ranges::count(sums.counts, 0);
  }
  std::string report =
      fmt::format("inputs of {} tensors, {} windows of up to {} tokens\n", done->sums.size(),
                  done->source.num_windows, done->source.window_tokens);
  if (unreached > 0) {
    report += fmt::format("{} of {} matrices of experts were never chosen; a longer text helps\n",
                          unreached, experts);
  }
  return write_stdout(report) ? 0 : kFailed;
}

}  // namespace

void add_imatrix(Verb program) {
  const auto options = std::make_shared<ImatrixVerb>();
  Verb verb = program.verb("imatrix", "Measure what quantizing should weigh: a model's inputs");
  verb.option("MODEL", options->model, "a .gguf file, or a model's name").required();
  verb.option("-f,--file", options->text, "the text; - is stdin").type_name("FILE").required();
  verb.option("-o,--out", options->out, "the importance matrix to write, a GGUF file")
      .type_name("FILE")
      .required();
  verb.option("--context", options->record.context, "tokens per window; default 512")
      .range(2, 1 << 24);
  verb.option("--tokens", options->record.max_tokens,
              "use at most this many tokens of the text; default all")
      .range(int64_t{1}, int64_t{1} << 40);
  verb.flag("--force", options->force, "overwrite FILE");
  add_compute_options(verb, options->device);
  verb.run([options] { return imatrix(*options); });
}

}  // namespace hearth::worker
