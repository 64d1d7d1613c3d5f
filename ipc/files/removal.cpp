#include "ipc/files/removal.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "ipc/files/model_file.h"
#include "ipc/text/shown_text.h"
#include "kernels/base/split_name.h"

namespace hearth::ipc {
namespace fs = std::filesystem;
namespace {

std::string path_text(const fs::path& path) { return one_line(path.string(), 0); }

bool is_within(const fs::path& path, const fs::path& folder) {
  const fs::path plain = folder.has_filename() ? folder : folder.parent_path();
  const auto end = std::ranges::mismatch(plain, path);
  return end.in1 == plain.end();
}

/// The folder that `file` was found in; its own, links resolved, has to lie in there, too.
Result<fs::path> folder_of(const fs::path& file, const std::vector<fs::path>& folders) {
  std::error_code error;
  for (const fs::path& folder : folders) {
    if (!is_within(file, folder)) continue;
    const fs::path real = fs::canonical(folder, error);
    const fs::path where = error ? fs::path() : fs::canonical(file.parent_path(), error);
    if (error) return Error::io(fmt::format("{}: {}", path_text(folder), error.message()));
    if (is_within(where, real)) return folder;
    return Error::forbidden(fmt::format("{} lies in {}, outside of {}: remove it there",
                                        path_text(file), path_text(where), path_text(folder)),
                            "model");
  }
  return Error::internal(fmt::format("{}: found in no folder", path_text(file)));
}

}  // namespace

Result<Removal> find_removal(const std::string& model, const std::vector<fs::path>& folders) {
  if (model.find('/') != std::string::npos) {
    return Error::invalid(
        fmt::format("{}: want a model's name (hearth models), not a path", one_line(model, 200)),
        "model");
  }
  const FoundModels found = list_model_files(folders);
  std::vector<std::string> names;
  for (const FoundModel& each : found.models) names.push_back(each.name);
  Removal out;
  out.model = match_model_name(model, names);
  if (out.model.empty()) {
    std::vector<std::string> searched;
    for (const fs::path& folder : folders) searched.push_back(path_text(folder));
    return Error::not_found(fmt::format("no model {} in {}; there are: {}", one_line(model, 200),
                                        fmt::join(searched, ", "), fmt::join(names, ", ")),
                            "model");
  }
  const FoundModel& chosen = *std::ranges::find(found.models, out.model, &FoundModel::name);
  HEARTH_ASSIGN_OR_RETURN(out.folder, folder_of(chosen.path, folders));
  for (const fs::path& part : parts_of_model(chosen.path)) {
    std::error_code error;
    const fs::file_status status = fs::symlink_status(part, error);
    if (!fs::exists(status)) continue;
    if (fs::is_regular_file(status)) out.bytes += fs::file_size(part, error);
    out.files.push_back(part);
  }
  for (const HiddenModel& each : found.hidden) {
    if (each.name == out.model) out.remaining.push_back(each.path);
  }
  return out;
}

Result<void> remove_files(const Removal& removal) {
  for (const fs::path& file : removal.files) {
    if (std::remove(file.c_str()) == 0 || errno == ENOENT) continue;
    std::string text = fmt::format("{}: {}", path_text(file), std::strerror(errno));
    if (errno == EACCES || errno == EPERM) return Error::forbidden(std::move(text));
    return Error::io(std::move(text));
  }
  return {};
}

}  // namespace hearth::ipc
