#pragma once
// Programs of the build, run as a shell would run them.

#include <string>

#include "tests/e2e/daemon.h"

namespace hearth::e2e {

struct CommandOutcome {
  int status = -1;
  std::string out;
  std::string err;
};

/// `words` in shell syntax after "hearth", in the sandbox's folder, with its runtime and state
/// directories and models; `input` is piped in (`piped`), else redirected from a file.
CommandOutcome run_hearth(const Sandbox& sandbox, const std::string& words,
                          const std::string& input = "", bool piped = false);

}  // namespace hearth::e2e
