#pragma once
// A model argument on the command line: a name, a role, or a file.

#include <string>

#include "kernels/base/result.h"

namespace hearth::cli {

/// If `word` is written as a file (./file.gguf; a split model's without the part's number, too),
/// its absolute path, which a daemon of the same user accepts; otherwise `word` unchanged. Of a
/// folder of published weights the file that was made of it. kNotFound if a word with a "/" is
/// neither; errors of file_of_folder.
Result<std::string> model_argument(const std::string& word);
/// The same for a model that is to be loaded: a folder is converted. Errors of converted_folder.
Result<std::string> loaded_model_argument(const std::string& word);

}  // namespace hearth::cli
