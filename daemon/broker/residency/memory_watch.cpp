#include "daemon/broker/residency/memory_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

namespace hearth::broker {
namespace {

/// The broker asks at every tick and for each waiting request.
constexpr int64_t kReadEveryUs = 250'000;
constexpr size_t kPieceBytes = 4096;
/// The kernel may end a piece early, between two lines. A piece below this was the last one.
constexpr ssize_t kShortBytes = 2048;
/// The kernel computes pressure anew every two seconds.
constexpr int64_t kReadPressureEveryUs = 1'000'000;

Descriptor open_file(const std::string& path) {
  return Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

uint64_t number_at(std::string_view text) {
  const size_t first = text.find_first_of("0123456789");
  if (first == text.npos) return 0;
  uint64_t value = 0;
  std::from_chars(text.data() + first, text.data() + text.size(), value);
  return value;
}

}  // namespace

std::string group_path(std::string_view groups, std::string_view controller) {
  while (!groups.empty()) {
    const std::string_view line = groups.substr(0, groups.find('\n'));
    groups.remove_prefix(std::min(line.size() + 1, groups.size()));
    const size_t first = line.find(':');
    const size_t second = first == line.npos ? first : line.find(':', first + 1);
    if (second == line.npos) continue;
    std::string_view names = line.substr(first + 1, second - first - 1);
    if (controller.empty() && names.empty()) return std::string(line.substr(second + 1));
    while (!names.empty() && !controller.empty()) {
      const std::string_view name = names.substr(0, names.find(','));
      if (name == controller) return std::string(line.substr(second + 1));
      names.remove_prefix(std::min(name.size() + 1, names.size()));
    }
  }
  return {};
}

uint64_t parse_available(std::string_view meminfo) {
  constexpr std::string_view kKey = "MemAvailable:";
  const size_t at = meminfo.find(kKey);
  if (at == meminfo.npos) return 0;
  const std::string_view rest = meminfo.substr(at + kKey.size());
  return number_at(rest.substr(0, rest.find('\n'))) * 1024;
}

double parse_pressure(std::string_view text) {
  constexpr std::string_view kKey = "some avg10=";
  const size_t at = text.find(kKey);
  if (at == text.npos) return 0;
  double percent = 0;
  text.remove_prefix(at + kKey.size());
  std::from_chars(text.data(), text.data() + text.size(), percent);
  return percent;
}

MemoryWatch::MemoryWatch(const Clock& clock, const std::string& root)
    : clock_(clock), meminfo_(open_file(root + "/proc/meminfo")) {
  pressures_[0] = open_file(root + "/proc/pressure/memory");
  open_group(root);
}

void MemoryWatch::open_group(const std::string& root) {
  const std::string groups(text_of(open_file(root + "/proc/self/cgroup")));
  const std::string version_1 = group_path(groups, "memory");
  const std::string version_2 = group_path(groups, "");
  if (!version_2.empty()) {
    pressures_[1] = open_file(root + "/sys/fs/cgroup" + version_2 + "/memory.pressure");
  }
  if (!version_1.empty()) {
    std::string dir = root + "/sys/fs/cgroup/memory" + version_1;
    limit_ = open_file(dir + "/memory.limit_in_bytes");
    if (limit_.get() < 0) {  // in a container the group itself is mounted there
      dir = root + "/sys/fs/cgroup/memory";
      limit_ = open_file(dir + "/memory.limit_in_bytes");
    }
    if (limit_.get() >= 0) {
      usage_ = open_file(dir + "/memory.usage_in_bytes");
      statistics_ = open_file(dir + "/memory.stat");
      inactive_ = "\ntotal_inactive_file ";
      return;
    }
  }
  if (version_2.empty()) return;
  const std::string dir = root + "/sys/fs/cgroup" + version_2;
  limit_ = open_file(dir + "/memory.max");
  usage_ = open_file(dir + "/memory.current");
  statistics_ = open_file(dir + "/memory.stat");
  inactive_ = "\ninactive_file ";
}

// Valid until the next call. Empty where the file is missing.
std::string_view MemoryWatch::text_of(const Descriptor& file) {
  text_.clear();
  while (file.get() >= 0) {
    const size_t before = text_.size();
    text_.resize(before + kPieceBytes);
    const ssize_t bytes = ::pread(file.get(), text_.data() + before, kPieceBytes, before);
    text_.resize(before + std::max<ssize_t>(bytes, 0));
    if (bytes < kShortBytes) break;
  }
  return text_;
}

// UINT64_MAX without a group or a limit, or if the room is at least `enough` in any case: the
// statistics take the kernel longest. File pages that were not used lately are reclaimed on demand,
// so they count as free.
uint64_t MemoryWatch::room_in_group(uint64_t enough) {
  const std::string_view max = text_of(limit_);
  if (max.empty() || max.starts_with("max")) return UINT64_MAX;
  const uint64_t limit = number_at(max);
  uint64_t used = number_at(text_of(usage_));
  if (limit >= used && limit - used >= enough) return UINT64_MAX;
  const std::string_view statistics = text_of(statistics_);
  if (const size_t at = statistics.find(inactive_); at != statistics.npos) {
    used -= std::min(used, number_at(statistics.substr(at + inactive_.size())));
  }
  return limit > used ? limit - used : 0;
}

uint64_t MemoryWatch::available_bytes() {
  read();
  return available_bytes_;
}

bool MemoryWatch::pressed() {
  read();
  return pressed_;
}

void MemoryWatch::read() {
  const int64_t now_us = clock_.now_us();
  if (now_us < next_us_) return;
  next_us_ = now_us + kReadEveryUs;
  const uint64_t available = parse_available(text_of(meminfo_));
  available_bytes_ =
      available == 0 ? 0 : std::min(available, std::max<uint64_t>(room_in_group(available), 1));
  if (now_us < next_pressure_us_) return;
  next_pressure_us_ = now_us + kReadPressureEveryUs;
  pressed_ = std::ranges::any_of(pressures_, [this](const Descriptor& file) {
    return parse_pressure(text_of(file)) > kPressedPercent;
  });
}

}  // namespace hearth::broker
