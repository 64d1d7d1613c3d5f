#include "ipc/cli/connect/program.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ipc/cli/exit_code.h"
#include "ipc/cli/terminal/terminal.h"
#include "ipc/files/paths.h"
#include "ipc/text/utf8.h"

namespace hearth::cli {
namespace fs = std::filesystem;

fs::path find_program(const std::string& name) {
  const ipc::Environment environment = ipc::Environment::of_process();
  std::vector<fs::path> candidates;
  if (!environment.program.empty()) {
    const fs::path here = environment.program.parent_path();
    candidates = {here / name, here.parent_path() / "libexec/hearth" / name};
  }
  const std::string path = environment.variable("PATH");
  for (size_t from = 0; from <= path.size();) {
    const size_t to = std::min(path.find(':', from), path.size());
    if (to > from) candidates.emplace_back(fs::path(path.substr(from, to - from)) / name);
    from = to + 1;
  }
  for (const fs::path& candidate : candidates) {
    struct stat found {};
    if (::stat(candidate.c_str(), &found) == 0 && S_ISREG(found.st_mode) &&
        ::access(candidate.c_str(), X_OK) == 0) {
      return candidate;
    }
  }
  return {};
}

Error exec_program(const fs::path& program, const std::vector<std::string>& arguments) {
  std::string name = "hearth";
  std::vector<std::string> words = arguments;
  std::vector<char*> argv = {name.data()};
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());
  return Error::io(
      fmt::format("{}: {}", ipc::to_valid_utf8(program.string()), std::strerror(errno)));
}

int exec_pull(const std::vector<std::string>& arguments) {
  const fs::path program = find_program("hearth-pull");
  if (program.empty()) {
    complain(
        "hearth-pull, which fetches models, is neither next to hearth nor on PATH; in a build "
        "tree: "
        "cmake --build build/cpu --target hearth-pull");
    return kFailed;
  }
  complain(exec_program(program, {arguments.begin() + 1, arguments.end()}).message);
  return kFailed;
}

namespace {

/// "cuda" if the words hold --device cuda:N or --device=cuda:N. Else "cpu", whose worker reports an
/// unknown device name.
std::string device_kind(const std::vector<std::string>& words) {
  constexpr std::string_view kFlag = "--device";
  for (size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    std::string_view value = words[i];
    if (!value.starts_with(kFlag)) continue;
    value.remove_prefix(kFlag.size());
    if (value.empty() && i + 1 < words.size()) {
      value = words[i + 1];
    } else if (value.starts_with('=')) {
      value.remove_prefix(1);
    }
    if (value.starts_with("cuda")) return "cuda";
  }
  return "cpu";
}

}  // namespace

int exec_worker(const std::vector<std::string>& arguments) {
  const std::string name = "hearth-worker-" + device_kind(arguments);
  const fs::path program = find_program(name);
  if (program.empty()) {
    complain(name + ", which computes, is neither next to hearth nor on PATH");
    return kFailed;
  }
  complain(exec_program(program, arguments).message);
  return kFailed;
}

}  // namespace hearth::cli
