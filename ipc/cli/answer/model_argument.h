#pragma once
// A model argument on the command line: a name, a role, or a file.

#include <string>

#include "kernels/base/result.h"

namespace hearth::cli {

/// If `word` is written as a file (./file.gguf; a split model's without the part's number, too),
/// its absolute path, which a daemon of the same user accepts; otherwise `word` unchanged.
/// kNotFound if a word with a "/" is not a file.
Result<std::string> model_argument(const std::string& word);

}  // namespace hearth::cli
