// hearth: the command line.

#include "ipc/cli/parse.h"

int main(int argc, char** argv) {
  const hearth::cli::Parsed parsed = hearth::cli::parse(argc, argv);
  return parsed.finished ? parsed.status : parsed.run(parsed.options);
}
