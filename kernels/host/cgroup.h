#pragma once
// The limit files of this process's control groups (v2).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace hearth::kernels {

/// Directories of the process's own group and all its parents, innermost first, from
/// <root>/proc/self/cgroup under <root>/sys/fs/cgroup. Empty without cgroup v2.
std::vector<std::string> cgroup_directories(const std::string& root);

/// The number in a limit file; empty if the file is absent, holds "max" or is not a number.
std::optional<uint64_t> read_cgroup_number(const std::string& file);

}  // namespace hearth::kernels
