#include "ipc/files/model_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>
#include <system_error>

#include "ipc/files/paths.h"
#include "ipc/text/utf8.h"
#include "kernels/base/chars.h"

namespace hearth::ipc {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kSuffix = ".gguf";
constexpr int kSubfolders = 2;
constexpr size_t kMaxEntries = 10'000;

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
        add(entry, owner);
      } else if (levels_left > 0 && !name.starts_with('.') && entry.is_directory(ignored)) {
        read(entry.path(), levels_left - 1, owner.empty() ? name : owner);
      }
    }
  }
  FoundModels take() { return std::move(out_); }

 private:
  void add(const fs::directory_entry& entry, const std::string& owner) {
    const std::string file = entry.path().filename().string();
    std::string name(without_suffix(file));
    if (lower(name).starts_with("mmproj")) return;
    if (names_.contains(name) && !owner.empty()) name += "@" + owner;
    std::error_code error;
    const uint64_t bytes = entry.file_size(error);
    if (error || !is_model_name(name) || !names_.insert(name).second) return;
    out_.models.push_back({std::move(name), entry.path(), bytes, changed_ns(entry.path())});
  }

  FoundModels out_;
  std::set<std::string> names_;
  size_t num_entries_ = 0;
};

}  // namespace

int64_t changed_ns(const fs::path& file_or_folder) {
  struct stat info {};
  const bool there = ::stat(file_or_folder.c_str(), &info) == 0;
  return there ? info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec : 0;
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

FoundModels list_model_files(const std::vector<fs::path>& dirs) {
  Finder finder;
  for (const fs::path& dir : dirs) finder.read(dir, kSubfolders, "");
  return finder.take();
}

std::string match_model_name(std::string_view asked, const std::vector<std::string>& names) {
  for (const std::string_view same : {asked, without_suffix(asked)}) {
    if (const auto found = std::ranges::find(names, same); found != names.end()) return *found;
  }
  const std::string wanted = lower(without_suffix(asked));
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
  if (fs::is_regular_file(file_or_name, ignored)) return fs::path(file_or_name);
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
