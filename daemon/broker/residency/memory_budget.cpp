#include "daemon/broker/residency/memory_budget.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string>

namespace hearth::broker {
namespace {

/// The system is asked for free memory for each waiting request.
constexpr int64_t kReadEveryUs = 250'000;

std::string text_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(in)), {});
}

uint64_t number_at(std::string_view text) {
  const size_t first = text.find_first_of("0123456789");
  if (first == text.npos) return 0;
  uint64_t value = 0;
  std::from_chars(text.data() + first, text.data() + text.size(), value);
  return value;
}

// Memory left below `limit`. File pages that were not used lately are reclaimed on demand, so they
// count as free; `cached` is their key in the group's statistics.
uint64_t room_below(uint64_t limit, uint64_t current, const std::string& stat,
                    std::string_view cached) {
  if (const size_t at = stat.find(cached); at != stat.npos) {
    current -= std::min(current, number_at(std::string_view(stat).substr(at + cached.size())));
  }
  return limit > current ? limit - current : 0;
}

// Room in this process's control group; UINT64_MAX if there is no group or it has no limit.
uint64_t room_in_group() {
  const std::string own = text_of("/proc/self/cgroup");
  const std::string v1 = group_path(own, "memory");
  const std::string v2 = group_path(own, "");
  if (!v1.empty()) {
    std::string dir = "/sys/fs/cgroup/memory" + v1;
    std::string max = text_of(dir + "/memory.limit_in_bytes");
    if (max.empty()) {  // in a container the group itself is mounted there
      dir = "/sys/fs/cgroup/memory";
      max = text_of(dir + "/memory.limit_in_bytes");
    }
    if (!max.empty()) {
      return room_below(number_at(max), number_at(text_of(dir + "/memory.usage_in_bytes")),
                        text_of(dir + "/memory.stat"), "\ntotal_inactive_file ");
    }
  }
  if (v2.empty()) return UINT64_MAX;
  const std::string dir = "/sys/fs/cgroup" + v2;
  const std::string max = text_of(dir + "/memory.max");
  if (max.empty() || max.starts_with("max")) return UINT64_MAX;
  return room_below(number_at(max), number_at(text_of(dir + "/memory.current")),
                    text_of(dir + "/memory.stat"), "\ninactive_file ");
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

uint64_t MemoryBudget::room(const InUse& in_use) const {
  const auto left = [](uint64_t all, uint64_t taken) { return all - std::min(all, taken); };
  if (budget_bytes_ > 0) return left(budget_bytes_, in_use.bytes);
  if (device_bytes_ > 0) return left(device_bytes_, in_use.bytes);
  const uint64_t available = available_();
  return available == 0 ? UINT64_MAX : left(available, in_use.to_come_bytes);
}

void MemoryBudget::found_device(uint64_t free_bytes, const InUse& others) {
  device_bytes_ = free_bytes + others.bytes - others.to_come_bytes;
}

uint64_t prefix_ram_share(uint64_t configured, uint64_t available, uint64_t promised) {
  if (available == 0) return configured;
  return std::min(configured, (available - std::min(available, promised)) / 2);
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

bool memory_is_pressed() {
  const std::string group = group_path(text_of("/proc/self/cgroup"), "");
  const std::string of_group =
      group.empty() ? "" : text_of("/sys/fs/cgroup" + group + "/memory.pressure");
  return std::max(parse_pressure(text_of("/proc/pressure/memory")), parse_pressure(of_group)) >
         kPressedPercent;
}

uint64_t available_memory_bytes() {
  const uint64_t available = parse_available(text_of("/proc/meminfo"));
  return available == 0 ? 0 : std::min(available, std::max<uint64_t>(room_in_group(), 1));
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
  available_bytes_ = available_memory_bytes();
  pressed_ = memory_is_pressed();
}

}  // namespace hearth::broker
