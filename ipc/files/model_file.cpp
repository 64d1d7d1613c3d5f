#include "ipc/files/model_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "ipc/files/paths.h"
#include "ipc/text/utf8.h"
#include "kernels/base/chars.h"
#include "kernels/base/split_name.h"

namespace hearth::ipc {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kSuffix = ".gguf";
constexpr int kSubfolders = 2;
constexpr size_t kMaxEntries = 10'000;
constexpr size_t kMaxListed = 4;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = ascii_lower(c);
  return out;
}

std::string_view without_suffix(std::string_view name) {
  return has_model_suffix(name) ? name.substr(0, name.size() - kSuffix.size()) : name;
}

class Finder {
 public:
  void read(const fs::path& dir, int levels_left, const std::string& owner) {
    out_.folders.push_back({dir, changed_ns(dir)});
    std::vector<fs::directory_entry> entries;
    std::error_code error;
    for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
      if (++num_entries_ > kMaxEntries) break;
      entries.push_back(*it);
    }
    for (const std::errc want : {std::errc::too_many_files_open, std::errc::not_enough_memory,
                                 std::errc::too_many_files_open_in_system}) {
      if (error == want) out_.cut_short = true;
    }
    std::ranges::sort(entries, {}, [](const fs::directory_entry& each) { return each.path(); });
    for (const fs::directory_entry& entry : entries) {
      std::error_code ignored;
      const std::string name = entry.path().filename().string();
      if (has_model_suffix(name) && entry.is_regular_file(ignored)) {
        add(entry.path(), owner);
      } else if (levels_left > 0 && !name.starts_with('.') && entry.is_directory(ignored)) {
        read(entry.path(), levels_left - 1, owner.empty() ? name : owner);
      }
    }
  }
  FoundModels take() { return std::move(out_); }

 private:
  void add(const fs::path& file, const std::string& owner) {
    const std::vector<fs::path> parts = parts_of_model(file);
    if (parts.size() > 1 && !sets_.insert(parts.front()).second) return;
    FoundModel model = model_of_file(file);
    if (lower(model.name).starts_with("mmproj") || !is_model_name(model.name)) return;
    if (const auto same = names_.find(model.name); same != names_.end()) {
      FoundModel& other = out_.models[same->second];
      const bool here = other.path.parent_path() == model.path.parent_path();
      if (here && rank(model) < rank(other)) std::swap(model, other);
      if (!owner.empty()) model.name += "@" + owner;
    }
    const auto [at, added] = names_.try_emplace(model.name, out_.models.size());
    if (added) {
      out_.models.push_back(std::move(model));
    } else {
      out_.hidden.push_back({model.name, model.path, out_.models[at->second].path});
    }
  }
  /// Of models with one name in one folder the lowest is listed.
  static int rank(const FoundModel& model) {
    if (!model.problem.empty()) return 2;
    return parts_of_model(model.path).size() > 1 ? 1 : 0;
  }

  FoundModels out_;
  std::map<std::string, size_t> names_;  // of out_.models
  std::set<fs::path> sets_;              // first parts of those that were added
  size_t num_entries_ = 0;
};

}  // namespace

int64_t changed_ns(const fs::path& file_or_folder) {
  struct stat info {};
  const bool there = ::stat(file_or_folder.c_str(), &info) == 0;
  return there ? info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec : 0;
}

FoundModel model_of_file(const fs::path& file) {
  const std::vector<fs::path> parts = parts_of_model(file);
  FoundModel out{.name = model_stem(without_suffix(file.filename().string())),
                 .path = parts.front()};
  std::vector<std::string> missing;
  for (const fs::path& part : parts) {
    std::error_code error;
    const uint64_t bytes = fs::file_size(part, error);
    if (error) {
      missing.push_back(to_valid_utf8(part.filename().string()));
      continue;
    }
    out.bytes += bytes;
    out.changed_ns = std::max(out.changed_ns, changed_ns(part));
  }
  if (missing.empty() || parts.size() == 1) return out;
  out.problem = fmt::format(
      "{} of its {} parts missing: {}", missing.size(), parts.size(),
      fmt::join(missing.begin(), missing.begin() + std::min(missing.size(), kMaxListed), ", "));
  if (missing.size() > kMaxListed) out.problem += ", ...";
  return out;
}

bool is_model_name(std::string_view name) {
  if (name.empty() || name.size() > 255 || name.front() == '-' || name.front() == '.') return false;
  return std::ranges::none_of(name,
                              [](char c) { return c == '/' || byte_of(c) < 0x20 || c == 0x7f; });
}

bool has_model_suffix(std::string_view file_name) {
  return file_name.size() > kSuffix.size() &&
         lower(file_name.substr(file_name.size() - kSuffix.size())) == kSuffix;
}

bool is_written_as_file(std::string_view word) {
  return word.find('/') != std::string_view::npos || has_model_suffix(word);
}

FoundModels list_model_files(const std::vector<fs::path>& dirs,
                             const std::vector<fs::path>& others) {
  Finder finder;
  for (const fs::path& dir : dirs) finder.read(dir, kSubfolders, "");
  for (const fs::path& dir : others) finder.read(dir, kSubfolders + 1, "");
  return finder.take();
}

std::string match_model_name(std::string_view asked, const std::vector<std::string>& names) {
  const std::string plain = model_stem(without_suffix(asked));
  for (const std::string_view same : {asked, without_suffix(asked), std::string_view(plain)}) {
    if (const auto found = std::ranges::find(names, same); found != names.end()) return *found;
  }
  const std::string wanted = lower(plain);
  std::string out;
  for (const std::string& name : names) {
    if (lower(name) != wanted) continue;
    if (!out.empty()) return "";
    out = name;
  }
  return out;
}

Result<fs::path> find_model_file(const std::string& file_or_name) {
  std::error_code ignored;
  const fs::path file =
      is_written_as_file(file_or_name) ? find_split_model(file_or_name) : fs::path(file_or_name);
  if (fs::is_regular_file(file, ignored)) return file;
  const std::string shown = to_valid_utf8(file_or_name);
  if (file_or_name.empty() || file_or_name.find('/') != std::string::npos) {
    return Error::not_found(fmt::format("{}: no such file", shown), "model");
  }
  HEARTH_ASSIGN_OR_RETURN(const Paths paths, resolve_paths(Environment::of_process()));
  const FoundModels found = list_model_files(paths.model_dirs);
  std::vector<std::string> names;
  for (const FoundModel& model : found.models) names.push_back(model.name);
  if (const std::string name = match_model_name(file_or_name, names); !name.empty()) {
    return std::ranges::find(found.models, name, &FoundModel::name)->path;
  }
  std::vector<std::string> looked;
  for (const fs::path& dir : paths.model_dirs) looked.push_back(to_valid_utf8(dir.string()));
  return Error::not_found(
      fmt::format("no file and no model is called {}; models are looked for in {}", shown,
                  fmt::join(looked, ", ")),
      "model");
}

}  // namespace hearth::ipc
