#pragma once
// hearth's other programs: where they are, and becoming one of them. Verbs that compute without a
// daemon are verbs of the worker: this program links no engine.

#include <filesystem>
#include <string>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::cli {

/// `name` beside this program, in ../libexec/hearth, or on PATH; empty where there is none.
std::filesystem::path find_program(const std::string& name);

/// Becomes `program`, which is told that its name is hearth, with these arguments. Returns only
/// where that failed: kIo.
Error exec_program(const std::filesystem::path& program, const std::vector<std::string>& arguments);

/// Becomes the worker of the device that the arguments ask for with --device, by default the CPU's:
/// `hearth-worker-<device> ARGUMENTS...`. Returns only where that failed, after the reason was
/// printed: the exit status.
int exec_worker(const std::vector<std::string>& arguments);

/// Becomes the program that fetches models; the first of `arguments` is the verb. As exec_worker.
int exec_pull(const std::vector<std::string>& arguments);

}  // namespace hearth::cli
