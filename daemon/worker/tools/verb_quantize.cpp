// hearth quantize IN OUT --type T: converts a model file to another type.

#include <fmt/core.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "daemon/worker/load/device.h"
#include "daemon/worker/tools/command_line.h"
#include "daemon/worker/tools/progress_line.h"
#include "daemon/worker/tools/stop_flag.h"
#include "daemon/worker/tools/verbs.h"
#include "ipc/files/model_file.h"
#include "ipc/text/shown_text.h"
#include "kernels/base/split_name.h"
#include "models/quantize/quantize_file.h"

namespace hearth::worker {
namespace {

struct QuantizeVerb {
  std::string in;
  std::string out;
  std::string type;
  std::string imatrix;
  bool awq = false;
  bool requantize = false;
  bool force = false;
  DeviceOptions device;
};

struct Quantized {
  models::QuantizeReport file;
  int32_t num_places = 0;  // where inputs could be scaled, and were
  int32_t num_scaled = 0;
};

Result<Quantized> run_quantize(const QuantizeVerb& options) {
  models::QuantizeOptions quantize;
  HEARTH_ASSIGN_OR_RETURN(quantize.mix, models::find_mix(options.type));
  quantize.requantize = options.requantize;
  HEARTH_ASSIGN_OR_RETURN(const auto path, ipc::find_model_file(options.in));
  std::error_code ignored;
  for (const std::filesystem::path& part : parts_of_model(path)) {
    if (std::filesystem::equivalent(part, options.out, ignored)) {
      return Error::invalid("OUT is IN; want another file", "out");
    }
  }
  if (!options.force && std::filesystem::exists(options.out, ignored)) {
    return Error::invalid(fmt::format("{} is there already; --force writes over it", options.out),
                          "out");
  }
  HEARTH_ASSIGN_OR_RETURN(const models::GgufFile file, models::GgufFile::open(path));
  HEARTH_ASSIGN_OR_RETURN(const kernels::OpTable ops, open_device(options.device));
  quantize.num_threads = ops.device.num_threads;
  std::optional<models::GgufFile> imatrix;
  std::optional<models::ImportanceMatrix> importance;
  if (options.awq && options.imatrix.empty()) {
    return Error::invalid("--awq: the sizes of inputs are missing; want --imatrix FILE", "awq");
  }
  if (!options.imatrix.empty()) {
    HEARTH_ASSIGN_OR_RETURN(imatrix, models::GgufFile::open(options.imatrix));
    HEARTH_ASSIGN_OR_RETURN(importance, models::ImportanceMatrix::read(*imatrix));
    quantize.importance = &*importance;
  }
  ProgressLine progress;
  models::InputScales scales;
  if (options.awq) {
    progress.stage("searching scales of inputs");
    kernels::ThreadPool pool(quantize.num_threads);
    HEARTH_ASSIGN_OR_RETURN(scales,
                            models::search_input_scales(file, quantize.mix, *importance, pool,
                                                        [&](int32_t done, int32_t total) {
                                                          progress.percent(done, total);
                                                          return !stop_wanted();
                                                        }));
    quantize.scales = &scales;
  }
  progress.stage(fmt::format("writing {} as {}", options.out, quantize.mix.name));
  const auto watch = [&](uint64_t done, uint64_t total) {
    progress.percent(done, total);
    return !stop_wanted();
  };
  Quantized out;
  HEARTH_ASSIGN_OR_RETURN(out.file, models::quantize_file(file, options.out, quantize, watch));
  out.num_places = scales.num_places;
  out.num_scaled = scales.num_scaled;
  return out;
}

int quantize(const QuantizeVerb& options) {
  catch_stop_signals();
  const Result<Quantized> done = run_quantize(options);
  if (!done.ok()) return report_failure(done.error());
  std::string report =
      fmt::format("{} of {} tensors stored anew: {} instead of {}\n", done->file.num_changed,
                  done->file.num_tensors, ipc::human_bytes(done->file.bytes_after),
                  ipc::human_bytes(done->file.bytes_before));
  if (!options.imatrix.empty()) {
    report += fmt::format("{} of them weighted by {}\n", done->file.num_weighted, options.imatrix);
  }
  if (options.awq) {
    report += fmt::format("inputs scaled in {} of {} places\n", done->num_scaled, done->num_places);
  }
  return write_stdout(report) ? 0 : kFailed;
}

}  // namespace

void add_quantize(Verb program) {
  const auto options = std::make_shared<QuantizeVerb>();
  Verb verb = program.verb("quantize", "Convert a model file to another weight type");
  verb.option("IN", options->in, "a .gguf file, or a model's name").required();
  verb.option("OUT", options->out, "the file to write").required();
  std::string names;
  for (const models::Mix& mix : models::mixes()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", mix.name);
  }
  verb.option("--type", options->type, names).type_name("T").required();
  verb.option("--imatrix", options->imatrix,
              "an importance matrix of IN (hearth imatrix): errors are weighted by it")
      .type_name("FILE");
  verb.flag("--awq", options->awq,
            "scale inputs first, where that leaves less error (needs --imatrix)");
  verb.flag("--requantize", options->requantize, "even from a file with fewer than eight bits");
  verb.flag("--force", options->force, "overwrite OUT");
  verb.option("--device", options->device.device, "cpu or cuda:N; default: the CPU")
      .type_name("NAME");
  verb.option("--threads", options->device.threads, "compute threads; 0: one per core")
      .range(0, 4096);
  verb.run([options] { return quantize(*options); });
}

}  // namespace hearth::worker
