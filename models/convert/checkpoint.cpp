#include "models/convert/checkpoint.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <system_error>

#include "models/gguf/gguf_file.h"

namespace hearth::models {
namespace fs = std::filesystem;

Result<Checkpoint> Checkpoint::open(const fs::path& folder) {
  Checkpoint out;
  out.folder_ = folder;
  HEARTH_ASSIGN_OR_RETURN(out.config_, read_json_file(folder / "config.json"));
  std::vector<fs::path> paths;
  std::error_code problem;
  for (fs::directory_iterator it(folder, problem), end; !problem && it != end;
       it.increment(problem)) {
    if (it->path().extension() == ".safetensors") paths.push_back(it->path());
  }
  if (problem) return Error::io(fmt::format("{}: {}", folder.string(), problem.message()));
  if (paths.empty()) {
    return Error::not_found(fmt::format("{}: no .safetensors file", folder.string()));
  }
  std::ranges::sort(paths);
  std::map<std::string_view, const SafeTensor*> seen;
  for (const fs::path& path : paths) {
    HEARTH_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(path));
    out.files_.push_back(std::move(file));
  }
  for (const SafetensorsFile& file : out.files_) {
    for (const auto& [name, tensor] : file.tensors()) {
      if (seen.emplace(name, &tensor).second) continue;
      return Error::corrupt(
          fmt::format("{}: two files have a tensor {}", folder.string(), printable(name)));
    }
  }
  return out;
}

const SafeTensor* Checkpoint::tensor(std::string_view name) const {
  for (const SafetensorsFile& file : files_) {
    const auto found = file.tensors().find(name);
    if (found != file.tensors().end()) return &found->second;
  }
  return nullptr;
}

std::vector<const SafeTensor*> Checkpoint::tensors() const {
  std::vector<const SafeTensor*> out;
  for (const SafetensorsFile& file : files_) {
    for (const auto& [name, tensor] : file.tensors()) out.push_back(&tensor);
  }
  return out;
}

void Checkpoint::drop_pages(const SafeTensor& tensor) const {
  for (const SafetensorsFile& file : files_) file.drop_pages(tensor.bytes);
}

}  // namespace hearth::models
