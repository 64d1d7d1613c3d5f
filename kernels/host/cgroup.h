#pragma once
// Where this process's control groups (v2) keep their limits.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace hearth::kernels {

/// Directories of the process's own group and all its parents, innermost first, from
/// <root>/proc/self/cgroup under <root>/sys/fs/cgroup. Empty without cgroup v2.
std::vector<std::string> cgroup_directories(const std::string& root);

/// The number a limit file holds; nothing where it says "max", is absent or is no number.
std::optional<uint64_t> read_cgroup_number(const std::string& file);

}  // namespace hearth::kernels
