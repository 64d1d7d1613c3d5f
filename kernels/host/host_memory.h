#pragma once
// Host memory that a CPU table hands out: zeroed, aligned to 64 bytes, in huge pages as far as
// whole ones of them fit, the rest in small ones.

#include <cstddef>

namespace hearth::kernels {

/// What memory comes in where it can; larger requests begin at one.
inline constexpr size_t kHugePage = size_t{2} << 20;

/// Null when there is not enough. Any thread.
void* allocate_host(size_t bytes);
/// `bytes` as it was asked for.
void release_host(void* memory, size_t bytes);

struct HostMemoryInfo {
  size_t total_bytes = 0;      ///< that this process may use: RAM, or its cgroup's limit
  size_t available_bytes = 0;  ///< of that, not in use now
};
/// From /proc/meminfo and the cgroup limits (v2 memory.max of this process's group and its
/// parents). `root` is "" outside tests.
HostMemoryInfo host_memory_info(const char* root = "");

}  // namespace hearth::kernels
