// hearth convert FOLDER OUT: converts published weights to one model file.

#include <fmt/core.h>

#include <filesystem>
#include <memory>
#include <string>

#include "daemon/worker/load/measuring_ops.h"
#include "daemon/worker/tools/command_line.h"
#include "daemon/worker/tools/progress_line.h"
#include "daemon/worker/tools/stop_flag.h"
#include "daemon/worker/tools/verbs.h"
#include "ipc/text/shown_text.h"
#include "models/convert/convert.h"
#include "models/gguf/gguf_file.h"
#include "models/gguf/heads_keys.h"
#include "models/model.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::worker {
namespace {

struct ConvertVerb {
  std::string folder;
  std::string out;
  std::string type;
  std::string target;
  bool without_tokenizer = false;
};

/// Checks that this build can load the result: the shapes against the metadata, and the tokenizer.
Result<void> check(const ConvertVerb& options) {
  HEARTH_ASSIGN_OR_RETURN(const models::GgufFile file, models::GgufFile::open(options.out));
  if (models::is_heads(file)) return models::check_heads(file, measuring_ops());
  HEARTH_TRY(models::load_model(file, measuring_ops(), nullptr));
  if (!options.without_tokenizer) HEARTH_TRY(models::load_tokenizer(file));
  return {};
}

Result<models::ConvertReport> run_convert(const ConvertVerb& options) {
  models::ConvertOptions convert;
  convert.without_tokenizer = options.without_tokenizer;
  convert.target = options.target;
  if (options.type == "F32") convert.type = kernels::DType::kF32;
  if (options.type == "F16") convert.type = kernels::DType::kF16;
  if (options.type == "BF16") convert.type = kernels::DType::kBF16;
  ProgressLine progress;
  progress.stage(fmt::format("writing {}", options.out));
  HEARTH_ASSIGN_OR_RETURN(models::ConvertReport report,
                          models::convert_folder(options.folder, options.out, convert,
                                                 [&](uint64_t done, uint64_t total) {
                                                   progress.percent(done, total);
                                                   return !stop_wanted();
                                                 }));
  if (Result<void> fine = check(options); !fine.ok()) {
    std::error_code ignored;
    std::filesystem::remove(options.out, ignored);
    return fine.take_error();
  }
  return report;
}

int convert(const ConvertVerb& options) {
  catch_stop_signals();
  const Result<models::ConvertReport> done = run_convert(options);
  if (!done.ok()) return report_failure(done.error());
  std::string rest;
  if (done->num_kept > 0) {
    rest += fmt::format(" ({} of packed numbers, kept without loss)", done->num_kept);
  }
  if (done->num_rescaled > 0) {
    rest += fmt::format(" ({} of packed numbers, kept, their scales rounded)", done->num_rescaled);
  }
  if (done->num_rounded > 0) {
    rest += fmt::format(" ({} of packed numbers, rounded)", done->num_rounded);
  }
  if (done->num_left_out > 0) {
    rest += fmt::format(", without {} of images, sound or drafting", done->num_left_out);
  }
  const std::string report =
      fmt::format("{}: {} tensors{}, {}; try: hearth inspect {}\n", done->architecture,
                  done->num_tensors, rest, ipc::human_bytes(done->bytes), options.out);
  return write_stdout(report) ? 0 : kFailed;
}

}  // namespace

void add_convert(Verb program) {
  const auto options = std::make_shared<ConvertVerb>();
  Verb verb = program.verb("convert", "Convert published weights (safetensors) to a model file");
  verb.option("FOLDER", options->folder,
              "folder with config.json, tokenizer.json and *.safetensors; or of heads that draft")
      .required();
  verb.option("OUT", options->out, "the .gguf file to write").required();
  verb.option("--type", options->type,
              "type of matrices: F32, F16, BF16; default: as stored, whole numbers with scales "
              "(GPTQ, AWQ, int8) without loss")
      .type_name("T")
      .one_of({"F32", "F16", "BF16"});
  verb.option("--target", options->target,
              "the model that an EAGLE-3 head or a DFlash drafter drafts for: for its name, and "
              "for the "
              "layers of an EAGLE-3 head whose config.json does not list them")
      .type_name("FILE");
  verb.flag("--without-tokenizer", options->without_tokenizer,
            "convert a folder without a tokenizer; requests then need token ids");
  verb.run([options] { return convert(*options); });
}

}  // namespace hearth::worker
