#include "daemon/broker/residency/disk_budget.h"

#include <sys/stat.h>

#include <algorithm>
#include <system_error>
#include <tuple>
#include <utility>

#include "kernels/base/log.h"

namespace hearth::broker {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kEveryUs = 60'000'000;
constexpr const char* kJournals[] = {"-wal", "-shm", "-journal"};
/// "-0123456789abcdef.db"
constexpr size_t kNameSuffix = 20;

}  // namespace

std::string database_name(const std::string& model) {
  std::string name;
  for (const char c : model.substr(0, 64)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || (c == '.' && !name.empty());
    name += plain ? c : '_';
  }
  return name.empty() ? "model" : name;
}

std::vector<PrefixDatabase> find_databases(const fs::path& folder) {
  std::vector<PrefixDatabase> out;
  std::error_code problem;
  for (fs::directory_iterator at(folder, problem), end; !problem && at != end;
       at.increment(problem)) {
    const std::string name = at->path().filename().string();
    if (name.size() <= kNameSuffix || !name.ends_with(".db")) continue;
    struct stat found {};
    if (::lstat(at->path().c_str(), &found) != 0 || !S_ISREG(found.st_mode)) continue;
    PrefixDatabase database{at->path(), name.substr(0, name.size() - kNameSuffix),
                            static_cast<uint64_t>(found.st_size), found.st_mtim.tv_sec};
    for (const char* journal : kJournals) {
      if (::lstat((at->path().string() + journal).c_str(), &found) != 0) continue;
      database.bytes += found.st_size;
      database.used_s = std::max<int64_t>(database.used_s, found.st_mtim.tv_sec);
    }
    out.push_back(std::move(database));
  }
  return out;
}

std::vector<PrefixDatabase> databases_to_drop(std::vector<PrefixDatabase> all,
                                              uint64_t budget_bytes,
                                              const std::set<std::string>& open,
                                              const std::set<std::string>& known) {
  uint64_t bytes = 0;
  for (const PrefixDatabase& database : all) bytes += database.bytes;
  std::erase_if(all, [&](const PrefixDatabase& each) { return open.contains(each.model); });
  const auto key = [&](const PrefixDatabase& each) {
    return std::tuple(known.contains(each.model), each.used_s, each.file);
  };
  std::ranges::sort(all, {}, key);
  size_t count = 0;
  while (count < all.size() && bytes > budget_bytes) bytes -= all[count++].bytes;
  all.resize(count);
  return all;
}

void DiskBudget::tick(int64_t now_us) {
  if (folder_.empty() || now_us < next_us_) return;
  next_us_ = now_us + kEveryUs;
  std::set<std::string> open, known;
  names_(open, known);
  for (const PrefixDatabase& database :
       databases_to_drop(find_databases(folder_), budget_bytes_, open, known)) {
    log_info("prefix_database_dropped", "file={} bytes={} model_known={}",
             database.file.filename().string(), database.bytes, known.contains(database.model));
    std::error_code ignored;
    fs::remove(database.file, ignored);
    for (const char* journal : kJournals) fs::remove(database.file.string() + journal, ignored);
  }
}

}  // namespace hearth::broker
