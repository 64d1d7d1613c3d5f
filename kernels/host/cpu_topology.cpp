#include "kernels/host/cpu_topology.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <set>

#include "kernels/base/sizes.h"
#include "kernels/host/cgroup.h"

namespace hearth::kernels {
namespace {

/// CPUs of the calling thread's affinity mask; empty if the kernel has more CPUs than the mask
/// holds.
std::vector<int32_t> affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int32_t> cpus;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

}  // namespace

std::optional<std::vector<int32_t>> parse_cpu_list(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  std::vector<int32_t> cpus;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at != end) {
    int32_t first = 0;
    auto parsed = std::from_chars(at, end, first);
    if (parsed.ec != std::errc() || first < 0) return std::nullopt;
    int32_t last = first;
    if (parsed.ptr != end && *parsed.ptr == '-') {
      parsed = std::from_chars(parsed.ptr + 1, end, last);
      if (parsed.ec != std::errc()) return std::nullopt;
    }
    constexpr int32_t kMostCpus = 1 << 16;
    if (last < first || last >= kMostCpus) return std::nullopt;
    for (int32_t cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    at = parsed.ptr;
    if (at == end) break;
    if (*at != ',' || ++at == end) return std::nullopt;
  }
  return cpus;
}

int32_t physical_cores(const std::vector<int32_t>& cpus, const std::string& root) {
  std::set<int32_t> cores;  // each identified by its lowest thread
  for (const int32_t cpu : cpus) {
    std::ifstream file(root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                       "/topology/thread_siblings_list");
    std::string line;
    std::getline(file, line);
    const auto siblings = parse_cpu_list(line);
    const bool known = siblings && !siblings->empty();
    cores.insert(known ? *std::min_element(siblings->begin(), siblings->end()) : cpu);
  }
  return size32(cores);
}

std::optional<int32_t> cgroup_cpus(const std::string& root) {
  std::optional<int32_t> fewest;
  for (const std::string& group : cgroup_directories(root)) {
    std::ifstream file(group + "/cpu.max");
    double quota_us = 0;
    double period_us = 0;
    if (!(file >> quota_us >> period_us) || !(quota_us > 0) || !(period_us > 0)) continue;
    const double cpus = std::min(std::ceil(quota_us / period_us), 65536.0);
    const auto whole = std::max(1, static_cast<int32_t>(cpus));
    fewest = fewest ? std::min(*fewest, whole) : whole;
  }
  return fewest;
}

int32_t usable_cores() {
  int32_t cores = std::max(1, physical_cores(affinity(), ""));
  if (const auto limit = cgroup_cpus("")) cores = std::min(cores, *limit);
  return cores;
}

std::string cpu_name(const std::string& root) {
  std::ifstream file(root + "/proc/cpuinfo");
  std::string line;
  std::string implementer;  // AArch64 reports numbers instead of names
  while (std::getline(file, line)) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    std::string value = line.substr(colon + 2);
    if (line.rfind("model name", 0) == 0) return value;
    if (line.rfind("CPU implementer", 0) == 0) implementer = value;
    if (line.rfind("CPU part", 0) == 0) return "CPU " + implementer + ":" + value;
  }
  return "unknown CPU";
}

}  // namespace hearth::kernels
