#include "daemon/broker/memory_budget.h"

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

// Of control group v2; where there is none, or it has no bound, UINT64_MAX.
uint64_t room_in_group() {
  const std::string own = text_of("/proc/self/cgroup");
  const size_t at = own.find("0::");
  if (at == own.npos) return UINT64_MAX;
  const std::string path = own.substr(at + 3, own.find('\n', at) - at - 3);
  const std::string dir = "/sys/fs/cgroup" + path;
  const std::string max = text_of(dir + "/memory.max");
  if (max.empty() || max.starts_with("max")) return UINT64_MAX;
  const uint64_t limit = number_at(max);
  uint64_t current = number_at(text_of(dir + "/memory.current"));
  // Pages of files that nobody used lately are given up on demand.
  constexpr std::string_view kCached = "\ninactive_file ";
  const std::string stat = text_of(dir + "/memory.stat");
  if (const size_t cached = stat.find(kCached); cached != stat.npos) {
    current -= std::min(current, number_at(std::string_view(stat).substr(cached + kCached.size())));
  }
  return limit > current ? limit - current : 0;
}

}  // namespace

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
