#include "ipc/model_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <system_error>

#include "ipc/paths.h"
#include "ipc/utf8.h"

namespace hearth::ipc {
namespace fs = std::filesystem;

Result<fs::path> find_model_file(const std::string& file_or_name) {
  constexpr std::string_view kSuffix = ".gguf";
  std::error_code ignored;
  if (fs::is_regular_file(file_or_name, ignored)) return fs::path(file_or_name);
  const std::string shown = to_valid_utf8(file_or_name);
  if (file_or_name.empty() || file_or_name.find('/') != std::string::npos ||
      file_or_name.ends_with(kSuffix)) {
    return Error{ErrorCode::kNotFound, fmt::format("{}: there is no such file", shown), "model"};
  }
  HEARTH_ASSIGN_OR_RETURN(const Paths paths, resolve_paths(Environment::of_process()));
  std::vector<std::string> looked;
  for (const fs::path& dir : paths.model_dirs) {
    const fs::path file = dir / (file_or_name + std::string(kSuffix));
    if (fs::is_regular_file(file, ignored)) return file;
    looked.push_back(to_valid_utf8(dir.string()));
  }
  return Error{ErrorCode::kNotFound,
               fmt::format("no file and no model is called {}; models are looked for in {}", shown,
                           fmt::join(looked, ", ")),
               "model"};
}

}  // namespace hearth::ipc
