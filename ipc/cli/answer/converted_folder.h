#pragma once
// A folder of published weights as a model argument: the file that `hearth convert` makes of it.

#include <filesystem>

#include "kernels/base/result.h"

namespace hearth::cli {

/// Whether it has published weights: a directory with config.json.
bool is_weights_folder(const std::filesystem::path& folder);

/// The place of the file that is made of it, in the user's state directory. kIo: the system's
/// reason; and as of ipc::resolve_paths.
Result<std::filesystem::path> file_of_folder(const std::filesystem::path& folder);
/// Makes that file if it is not there yet, or is older than a file of the folder. Reports progress
/// on stderr, and there the converter's reason for kInvalidArgument. kForbidden: the directory's.
Result<std::filesystem::path> converted_folder(const std::filesystem::path& folder);

}  // namespace hearth::cli
