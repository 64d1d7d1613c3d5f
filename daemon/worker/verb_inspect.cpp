// hearth inspect FILE: what a model file holds.

#include <CLI/CLI.hpp>
#include <memory>

#include "daemon/worker/inspection.h"
#include "daemon/worker/verbs.h"
#include "ipc/model_file.h"

namespace hearth::worker {
namespace {

struct Options {
  std::string file;
  bool json = false;
  InspectionFormat format;
};

Result<void> run(const Options& options) {
  HEARTH_ASSIGN_OR_RETURN(const auto path, ipc::find_model_file(options.file));
  HEARTH_ASSIGN_OR_RETURN(models::GgufFile file, models::GgufFile::open(path));
  // The digest of a file that is only looked at is nobody's business, and means reading all of it.
  file.set_fingerprint("-");
  const Inspection inspection = inspect(file, path.string());
  write_stdout(options.json ? as_json(inspection, options.format)
                            : as_text(inspection, options.format));
  return {};
}

}  // namespace

void add_inspect(CLI::App& app, int* status) {
  const auto options = std::make_shared<Options>();
  CLI::App* verb =
      app.add_subcommand("inspect", "What a model file holds, and whether it runs here");
  verb->add_option("FILE", options->file, "a .gguf file, or a model's name")->required();
  verb->add_flag("--tensors", options->format.tensors, "the list of tensors too");
  verb->add_flag("--all", options->format.all, "arrays and texts in full, and all tensors");
  verb->add_flag("--json", options->json, "one JSON object");
  verb->callback([options, status] {
    const Result<void> done = run(*options);
    *status = done.ok() ? 0 : report_failure(done.error());
  });
}

}  // namespace hearth::worker
