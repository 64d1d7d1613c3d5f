#pragma once
// The file that a user means by a model's name.

#include <filesystem>
#include <string>

#include "kernels/base/result.h"

namespace hearth::ipc {

/// `file_or_name` where it is an existing file; else NAME.gguf in the first model directory that
/// has it (ipc/paths.h), unless it is written as a path (has a "/" or ends in .gguf). kNotFound
/// says where was looked. For people's own command lines: a client of the daemon names no paths.
Result<std::filesystem::path> find_model_file(const std::string& file_or_name);

}  // namespace hearth::ipc
