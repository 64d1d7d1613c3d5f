#include "tests/e2e/command.h"

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>

namespace hearth::e2e {

CommandOutcome run_hearth(const Sandbox& sandbox, const std::string& words,
                          const std::string& input, bool piped) {
  const std::string dir = sandbox.path().string();
  std::ofstream(sandbox.path() / "in") << input;
  const std::string variables = "HEARTH_RUNTIME_DIR=" + sandbox.runtime().string() +
                                " HEARTH_STATE_DIR=" + sandbox.state().string() +
                                " HEARTH_MODEL_DIRS=" + sandbox.models().string() + " ";
  const std::string command = "cd " + dir + " && " + (piped ? "cat in | " : "") + variables +
                              program("hearth").string() + " " + words + (piped ? "" : " <in") +
                              " >out 2>err";
  const pid_t pid = start_program({"/bin/sh", "-c", command});
  const std::optional<int> how = wait_for_exit(pid, kPatienceMs);
  REQUIRE_MESSAGE(how.has_value(), words);
  return {WIFEXITED(*how) ? WEXITSTATUS(*how) : -1, text_of(sandbox.path() / "out"),
          text_of(sandbox.path() / "err")};
}

}  // namespace hearth::e2e
