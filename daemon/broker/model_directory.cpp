#include "daemon/broker/model_directory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

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

void ModelDirectory::configure(std::vector<fs::path> dirs,
                               const std::map<std::string, std::string>& roles) {
  dirs_ = std::move(dirs);
  for (const auto& [role, model] : roles) {
    if (model.empty()) {
      roles_.erase(role);
    } else {
      roles_[role] = model;
    }
  }
  rescan();
}

std::vector<int64_t> ModelDirectory::changed_at() const {
  std::vector<int64_t> out;
  for (const fs::path& dir : dirs_) {
    struct stat info {};
    const bool there = ::stat(dir.c_str(), &info) == 0;
    out.push_back(there ? info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec : 0);
  }
  return out;
}

void ModelDirectory::refresh() {
  if (changed_at() != changed_at_) rescan();
}

void ModelDirectory::rescan() {
  changed_at_ = changed_at();  // before the reading: what changes meanwhile is seen next time
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
  refresh();
  auto model = models_.find(target_of(name));
  std::error_code ignored;
  if (model == models_.end() || !fs::exists(model->second.path, ignored)) {
    rescan();  // two changes within one tick of the file system's clock look like one
    model = models_.find(target_of(name));
  }
  if (model == models_.end()) return not_found(name, target_of(name));
  return model->second;
}

Result<std::string> ModelDirectory::model_of_role(const std::string& role) const {
  if (roles_.contains(role) || role == kDefaultRole) return target_of(role);
  std::vector<std::string> names = {std::string(kDefaultRole)};
  for (const auto& [known, model] : roles_) {
    if (known != kDefaultRole) names.push_back(known);
  }
  return Error{ErrorCode::kNotFound,
               fmt::format("no role {}; there are: {}", role, fmt::join(names, ", ")), "role"};
}

Result<std::string> ModelDirectory::set_role(const std::string& role, const std::string& model) {
  HEARTH_ASSIGN_OR_RETURN(std::string before, model_of_role(role));
  roles_[role] = model;
  return before;
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
