#include "daemon/broker/model_directory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/base/log.h"

namespace hearth::broker {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kSuffix = ".gguf";
constexpr std::string_view kDefaultRole = "default";

// A name goes into logs, replies and a worker's arguments.
bool is_plain_name(const std::string& name) {
  if (name.empty() || name.size() > 255 || name.front() == '-' || name.front() == '.') return false;
  for (const char c : name) {
    if (c == '/' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return false;
  }
  return true;
}

}  // namespace

ModelDirectory::ModelDirectory(std::vector<fs::path> dirs, std::map<std::string, std::string> roles)
    : dirs_(std::move(dirs)), roles_(std::move(roles)) {
  rescan();
}

void ModelDirectory::rescan() {
  models_.clear();
  for (const fs::path& dir : dirs_) {
    std::error_code error;
    for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
      const fs::path& path = it->path();
      std::error_code not_a_file;
      if (path.extension() != kSuffix || !it->is_regular_file(not_a_file)) continue;
      ModelFile model{path.stem().string(), path, it->file_size(not_a_file)};
      if (not_a_file || !is_plain_name(model.name)) continue;
      models_.emplace(model.name, model);  // an earlier directory's file of that name stays
    }
  }
}

std::string ModelDirectory::target_of(const std::string& name) const {
  if (const auto role = roles_.find(name); role != roles_.end()) return role->second;
  if (name == kDefaultRole && !models_.empty()) return models_.begin()->first;
  return name;
}

Result<ModelFile> ModelDirectory::resolve(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    return Error{ErrorCode::kForbidden,
                 "a model is named by its file name without suffix; paths "
                 "are not taken from clients",
                 "model"};
  }
  rescan();  // a directory of a few files: microseconds, and never a stale answer
  const std::string target = target_of(name);
  const auto model = models_.find(target);
  if (model == models_.end()) return not_found(name, target);
  return model->second;
}

Error ModelDirectory::not_found(const std::string& name, const std::string& target) const {
  if (models_.empty()) {
    std::vector<std::string> dirs;
    for (const fs::path& dir : dirs_) dirs.push_back(dir.string());
    return {ErrorCode::kNotFound,
            fmt::format("there is no {} file in the model directories ({})", kSuffix,
                        fmt::join(dirs, ", ")),
            "model"};
  }
  std::vector<std::string> names;
  for (const auto& [known, model] : models_) names.push_back(known);
  return {
      ErrorCode::kNotFound,
      fmt::format("no model {}{}; there are: {}", target,
                  target == name ? "" : fmt::format(" (role {})", name), fmt::join(names, ", ")),
      "model"};
}

std::vector<std::string> ModelDirectory::roles_of(const std::string& model) const {
  std::vector<std::string> out;
  if (!roles_.contains(std::string(kDefaultRole)) &&
      target_of(std::string(kDefaultRole)) == model) {
    out.emplace_back(kDefaultRole);
  }
  for (const auto& [role, target] : roles_) {
    if (target == model) out.push_back(role);
  }
  return out;
}

}  // namespace hearth::broker
