#pragma once
// A folder of published weights as a model argument: the file that `hearth convert` makes of it.

#include <filesystem>

#include "kernels/base/result.h"

namespace hearth::cli {

/// Whether it has published weights: a directory with config.json.
bool is_weights_folder(const std::filesystem::path& folder);

/// The model file made of it, in the user's state directory: made now if it is not there yet, or is
/// older than a file of the folder. Reports progress on stderr. The converter's exit status is the
/// error's reason, which it has printed.
Result<std::filesystem::path> converted_folder(const std::filesystem::path& folder);

}  // namespace hearth::cli
