#include "daemon/broker/residency/memory_budget.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string>

namespace hearth::broker {
namespace {

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

bool MemoryBudget::fits(uint64_t bytes, const InUse& in_use) const {
  if (budget_bytes_ > 0) return in_use.bytes + bytes <= budget_bytes_;
  if (device_bytes_ > 0) return in_use.bytes + bytes <= device_bytes_;
  const uint64_t available = available_();
  return available == 0 || in_use.to_come_bytes + bytes <= available;
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

uint64_t available_memory_bytes() {
  const uint64_t available = parse_available(text_of("/proc/meminfo"));
  return available == 0 ? 0 : std::min(available, std::max<uint64_t>(room_in_group(), 1));
}

}  // namespace hearth::broker
