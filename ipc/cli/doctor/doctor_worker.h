#pragma once
// The checks that a worker program makes on itself: `hearth-worker-<device> doctor --json` prints
// one JSON object, {"checks":[{"level":"ok" | "warn" | "fail","name":"...","detail":"..."}]}.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::cli {

enum class Level { kOk, kWarn, kFail };
std::string_view name(Level level);

struct Check {
  Level level = Level::kOk;
  std::string name;    ///< what was checked
  std::string detail;  ///< the finding and its consequence
};

Result<std::vector<Check>> parse_worker_checks(std::string_view json);
/// A program's output on stdout and stderr, and its exit status.
struct ProgramOutput {
  std::string text;
  int status = 0;
};
/// Runs it and waits at most 10 s. kIo: it cannot be run, ended badly, or wrote too much.
Result<ProgramOutput> run_and_read(const std::filesystem::path& program,
                                   const std::vector<std::string>& words);
/// Runs the program and waits at most 10 s. kIo: it cannot be run, ended badly, or wrote too much.
Result<std::vector<Check>> ask_worker(const std::filesystem::path& program);

/// {"checks":[...]}, the same form.
std::string checks_as_json(const std::vector<Check>& checks);

}  // namespace hearth::cli
