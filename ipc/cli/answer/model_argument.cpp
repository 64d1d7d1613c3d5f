#include "ipc/cli/answer/model_argument.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "ipc/files/model_file.h"
#include "ipc/text/utf8.h"

namespace hearth::cli {
namespace fs = std::filesystem;

Result<std::string> model_argument(const std::string& word) {
  std::error_code error;
  if (!ipc::is_written_as_file(word)) return word;
  if (fs::is_regular_file(word, error)) return fs::absolute(word).lexically_normal().string();
  if (word.find('/') == std::string::npos) return word;
  return Error::not_found(fmt::format("{}: no such file", ipc::to_valid_utf8(word)), "model");
}

}  // namespace hearth::cli
