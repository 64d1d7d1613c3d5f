// hearth inspect FILE: shows the content of a model file.

#include <memory>

#include "daemon/worker/load/inspection.h"
#include "daemon/worker/tools/command_line.h"
#include "daemon/worker/tools/verbs.h"
#include "ipc/files/model_file.h"

namespace hearth::worker {
namespace {

struct InspectVerb {
  std::string file;
  bool json = false;
  InspectionFormat format;
};

Result<void> run_inspect(const InspectVerb& options) {
  HEARTH_ASSIGN_OR_RETURN(const auto path, ipc::find_model_file(options.file));
  HEARTH_ASSIGN_OR_RETURN(models::GgufFile file, models::GgufFile::open(path));
  // A digest is not needed here, and computing it would read the whole file.
  file.set_fingerprint("-");
  const Inspection inspection = inspect(file, path.string());
  write_stdout(options.json ? as_json(inspection, options.format)
                            : as_text(inspection, options.format));
  return {};
}

}  // namespace

void add_inspect(Verb program) {
  const auto options = std::make_shared<InspectVerb>();
  Verb verb = program.verb("inspect", "Show what a model file contains, and whether it runs here");
  verb.option("FILE", options->file, "a .gguf file, or a model's name").required();
  verb.flag("--tensors", options->format.tensors, "also list the tensors");
  verb.flag("--all", options->format.all, "arrays and texts in full, and all tensors");
  verb.flag("--json", options->json, "one JSON object");
  verb.run([options] {
    const Result<void> done = run_inspect(*options);
    return done.ok() ? 0 : report_failure(done.error());
  });
}

}  // namespace hearth::worker
