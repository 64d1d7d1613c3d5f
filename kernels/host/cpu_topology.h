#pragma once
// The number of cores that a process may compute on.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::kernels {

/// The CPU numbers in a kernel list such as "0-3,8,10-11"; empty for malformed text.
std::optional<std::vector<int32_t>> parse_cpu_list(std::string_view text);

/// Physical cores among `cpus`: hardware threads of one core (sysfs topology/thread_siblings_list)
/// count once. A CPU without topology counts as a core. `root` is "" outside tests.
int32_t physical_cores(const std::vector<int32_t>& cpus, const std::string& root);

/// CPUs' worth of time that the process's cgroups (v2 cpu.max) grant, rounded up; empty without a
/// limit.
std::optional<int32_t> cgroup_cpus(const std::string& root);

/// Physical cores that this process may run on, limited by its cgroup's CPU time; at least 1.
int32_t usable_cores();

/// The CPU's brand string, e.g. from /proc/cpuinfo; on AArch64 "CPU 0x41:0xd08" (implementer and
/// part); "unknown CPU" if neither is found.
std::string cpu_name(const std::string& root);

}  // namespace hearth::kernels
