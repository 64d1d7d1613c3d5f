// hearth config: lists every setting that hearthd would start with, and the source of its value.

#include "ipc/cli/connect/program.h"
#include "ipc/cli/exit_code.h"
#include "ipc/cli/terminal/terminal.h"
#include "ipc/cli/verbs/verbs.h"

namespace hearth::cli {

int config() {
  const std::filesystem::path program = find_program("hearthd");
  if (program.empty()) {
    complain("hearthd, which knows the settings, is neither next to hearth nor on PATH");
    return kFailed;
  }
  complain(exec_program(program, {"--print-config"}).message);
  return kFailed;
}

}  // namespace hearth::cli
