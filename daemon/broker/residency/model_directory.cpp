#include "daemon/broker/residency/model_directory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "ipc/text/utf8.h"
#include "kernels/base/log.h"

namespace hearth::broker {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kDefaultRole = "default";
constexpr size_t kMaxAdopted = 256;

ModelFile model_file(const ipc::FoundModel& found) {
  return {.name = found.name,
          .path = found.path,
          .bytes = found.bytes,
          .changed_ns = found.changed_ns,
          .problem = found.problem};
}

Error incomplete(const ModelFile& model) {
  return Error::not_found(
      fmt::format("model {} has {}; all parts have to be in {}", model.name, model.problem,
                  ipc::to_valid_utf8(model.path.parent_path().string())),
      "model");
}

}  // namespace

ModelDirectory::ModelDirectory(std::vector<fs::path> dirs, std::map<std::string, std::string> roles,
                               std::vector<fs::path> others)
    : dirs_(std::move(dirs)), others_(std::move(others)), roles_(std::move(roles)) {
  rescan();
}

void ModelDirectory::configure(std::vector<fs::path> dirs, std::vector<fs::path> others,
                               const std::map<std::string, std::string>& roles) {
  others_ = std::move(others);
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

void ModelDirectory::refresh() {
  const bool changed = std::ranges::any_of(folders_, [](const ipc::ModelFolder& folder) {
    return ipc::changed_ns(folder.path) != folder.changed_ns;
  });
  if (changed) rescan();
}

void ModelDirectory::rescan() {
  ipc::FoundModels found = ipc::list_model_files(dirs_, others_);
  if (found.cut_short) return;
  folders_ = std::move(found.folders);
  models_.clear();
  adapters_.clear();
  for (const ipc::FoundModel& each : found.models) {
    const bool adapter = each.path.parent_path().filename() == kAdapterFolder;
    (adapter ? adapters_ : models_).emplace(each.name, model_file(each));
  }
  for (const ModelFile& each : adopted_) models_.emplace(each.name, each);
  log_news(found.hidden);
}

// Once for each model, until it is complete or has a name to itself.
void ModelDirectory::log_news(const std::vector<ipc::HiddenModel>& hidden) {
  std::vector<fs::path> now;
  const auto is_news = [&](const fs::path& path) {
    now.push_back(path);
    return std::ranges::find(logged_, path) == logged_.end();
  };
  for (const ipc::HiddenModel& each : hidden) {
    if (!is_news(each.path)) continue;
    log_warn("model_hidden", "model={} file={} uses={}", each.name, each.path.string(),
             each.used.string());
  }
  for (const auto& [name, model] : models_) {
    if (model.problem.empty() || !is_news(model.path)) continue;
    log_warn("model_incomplete", "model={} why=\"{}\"", name, model.problem);
  }
  logged_ = std::move(now);
}

bool ModelDirectory::is_heads(std::string_view name) const {
  return std::ranges::any_of(
      std::array{"-medusa", "-eagle3", "-dflash"}, [&](std::string_view suffix) {
        return name.ends_with(suffix) &&
               models_.contains(std::string(name.substr(0, name.size() - suffix.size())));
      });
}

std::vector<fs::path> ModelDirectory::dirs() const {
  std::vector<fs::path> out = dirs_;
  out.insert(out.end(), others_.begin(), others_.end());
  return out;
}

std::vector<std::string> ModelDirectory::names() const {
  std::vector<std::string> out;
  for (const auto& [name, model] : models_) out.push_back(name);
  return out;
}

const ModelFile* ModelDirectory::find(const std::string& target) const {
  if (const auto same = models_.find(target); same != models_.end()) return &same->second;
  const std::string name = ipc::match_model_name(target, names());
  return name.empty() ? nullptr : &models_.at(name);
}

Result<std::string> ModelDirectory::adopt(const fs::path& file) {
  // Only the folder is resolved: a link's own name has the suffix, and the number of a part.
  std::error_code error;
  const fs::path path = fs::canonical(file.parent_path(), error) / file.filename();
  if (error || !fs::is_regular_file(path, error) ||
      !ipc::has_model_suffix(path.filename().string())) {
    return Error::not_found(
        fmt::format("{}: no such .gguf file", ipc::to_valid_utf8(file.string())), "model");
  }
  ModelFile adopted = model_file(ipc::model_of_file(path));
  if (!adopted.problem.empty()) return incomplete(adopted);
  refresh();
  for (const auto& [name, model] : models_) {
    if (fs::equivalent(model.path, adopted.path, error)) return name;
  }
  const std::string stem = adopted.name;
  std::string& name = adopted.name;
  for (int i = 2; models_.contains(name); ++i) name = fmt::format("{}@{}", stem, i);
  if (!ipc::is_model_name(name) || adopted_.size() >= kMaxAdopted) {
    return Error::invalid(
        fmt::format("{}: want a plain file name, and at most {} files by their paths",
                    ipc::to_valid_utf8(file.string()), kMaxAdopted),
        "model");
  }
  models_.emplace(name, adopted);
  adopted_.push_back(std::move(adopted));
  return adopted_.back().name;
}

std::string ModelDirectory::target_of(const std::string& name) const {
  if (const auto role = roles_.find(name); role != roles_.end()) return role->second;
  if (name != kDefaultRole || models_.empty()) return name;
  const auto usable =
      std::ranges::find_if(models_, [](const auto& each) { return each.second.problem.empty(); });
  return usable == models_.end() ? models_.begin()->first : usable->first;
}

Result<ModelFile> ModelDirectory::resolve(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    return Error::forbidden(
        fmt::format("{}: a model is named by its file's name; only the daemon's own user may "
                    "name a path. Put the file into {}",
                    ipc::to_valid_utf8(name),
                    dirs_.empty() ? "a model directory" : dirs_.front().string()),
        "model");
  }
  refresh();
  const ModelFile* model = find(target_of(name));
  std::error_code ignored;
  if (model == nullptr || !model->problem.empty() || !fs::exists(model->path, ignored)) {
    rescan();  // two changes within one tick of the file system's clock look like one
    model = find(target_of(name));
  }
  if (model == nullptr) return not_found(name, target_of(name));
  if (!model->problem.empty()) return incomplete(*model);
  return *model;
}

Result<ModelFile> ModelDirectory::resolve_adapter(const std::string& name) {
  const auto find_adapter = [&]() -> const ModelFile* {
    std::vector<std::string> known;
    for (const auto& [each, file] : adapters_) known.push_back(each);
    const std::string found = ipc::match_model_name(name, known);
    return found.empty() ? nullptr : &adapters_.at(found);
  };
  refresh();
  const ModelFile* adapter = find_adapter();
  std::error_code ignored;
  if (adapter == nullptr || !fs::exists(adapter->path, ignored)) {
    rescan();
    adapter = find_adapter();
  }
  if (adapter != nullptr) return *adapter;
  if (const auto model = models_.find(name); model != models_.end()) return model->second;
  std::vector<std::string> known;
  for (const auto& [each, file] : adapters_) known.push_back(each);
  return Error::not_found(
      fmt::format("no adapter {}; there are: {}. An adapter is a file in a folder {} of a model "
                  "directory ({})",
                  ipc::to_valid_utf8(name),
                  known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")),
                  kAdapterFolder, dirs_.empty() ? "" : dirs_.front().string()),
      "adapter");
}

Result<std::string> ModelDirectory::model_of_role(const std::string& role) const {
  if (roles_.contains(role) || role == kDefaultRole) return target_of(role);
  std::vector<std::string> names = {std::string(kDefaultRole)};
  for (const auto& [known, model] : roles_) {
    if (known != kDefaultRole) names.push_back(known);
  }
  return Error::not_found(fmt::format("no role {}; there are: {}", role, fmt::join(names, ", ")),
                          "role");
}

Result<std::string> ModelDirectory::set_role(const std::string& role, const std::string& model) {
  HEARTH_ASSIGN_OR_RETURN(std::string before, model_of_role(role));
  roles_[role] = model;
  return before;
}

Error ModelDirectory::not_found(const std::string& name, const std::string& target) const {
  if (models_.empty()) {
    std::vector<std::string> dirs;
    for (const fs::path& dir : this->dirs()) dirs.push_back(dir.string());
    return Error::not_found(
        fmt::format("no .gguf file in the model directories ({})", fmt::join(dirs, ", ")), "model");
  }
  return Error::not_found(
      fmt::format("no model {}{}; there are: {}", target,
                  target == name ? "" : fmt::format(" (role {})", name), fmt::join(names(), ", ")),
      "model");
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
