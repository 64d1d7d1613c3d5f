#include "ipc/cli/answer/model_argument.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "ipc/cli/answer/converted_folder.h"
#include "ipc/files/model_file.h"
#include "ipc/text/utf8.h"
#include "kernels/base/split_name.h"

namespace hearth::cli {
namespace fs = std::filesystem;

Result<std::string> model_argument(const std::string& word) {
  std::error_code error;
  if (!ipc::is_written_as_file(word)) return word;
  fs::path file = find_split_model(word);
  if (is_weights_folder(word)) {
    HEARTH_ASSIGN_OR_RETURN(file, file_of_folder(word));
  }
  if (fs::is_regular_file(file, error)) return fs::absolute(file).lexically_normal().string();
  if (word.find('/') == std::string::npos) return word;
  return Error::not_found(fmt::format("{}: no such file", ipc::to_valid_utf8(word)), "model");
}

Result<std::string> loaded_model_argument(const std::string& word) {
  if (!ipc::is_written_as_file(word) || !is_weights_folder(word)) return model_argument(word);
  HEARTH_ASSIGN_OR_RETURN(const fs::path file, converted_folder(word));
  return file.string();
}

}  // namespace hearth::cli
