#pragma once
// Finds and executes hearth's other programs. Verbs that compute without a daemon belong to the
// worker, because this program links no engine.

#include <filesystem>
#include <string>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::cli {

/// `name` next to this program, in ../libexec/hearth, or on PATH; empty if there is none.
std::filesystem::path find_program(const std::string& name);

/// Replaces this process by `program` (its argv[0] is hearth) with these arguments. Returns only on
/// failure: kIo.
Error exec_program(const std::filesystem::path& program, const std::vector<std::string>& arguments);

/// Replaces this process by `hearth-worker-<device> ARGUMENTS...`, for the device that --device
/// names (default: cpu). Returns only on failure, after printing the reason: the exit status.
int exec_worker(const std::vector<std::string>& arguments);

/// Replaces this process by the program that downloads models; the first of `arguments` is the
/// verb. Like exec_worker.
int exec_pull(const std::vector<std::string>& arguments);

}  // namespace hearth::cli
