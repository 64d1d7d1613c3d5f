#pragma once
// A model as people write it: a name, a role, or a file.

#include <string>

#include "kernels/base/result.h"

namespace hearth::cli {

/// The absolute path of a file that is written as one (./file.gguf), which a daemon of the same
/// user takes; anything else as it is written. kNotFound where a word with a "/" is no file.
Result<std::string> model_argument(const std::string& word);

}  // namespace hearth::cli
