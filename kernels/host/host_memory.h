#pragma once
// Host memory for the CPU tables: zeroed, aligned to 64 bytes, in as many whole huge pages as fit,
// the rest in small pages.

#include <cstddef>

namespace hearth::kernels {

/// Size of a huge page. Larger requests are aligned to one.
inline constexpr size_t kHugePage = size_t{2} << 20;

/// Null if there is not enough memory. Any thread.
void* allocate_host(size_t bytes);
/// `bytes` is the size passed to allocate_host.
void release_host(void* memory, size_t bytes);

struct HostMemoryInfo {
  size_t total_bytes = 0;      ///< usable by this process: RAM, or its cgroup's limit
  size_t available_bytes = 0;  ///< of that, currently unused
};
/// From /proc/meminfo and the cgroup limits (v2 memory.max of this process's group and its
/// parents). `root` is "" outside tests.
HostMemoryInfo host_memory_info(const char* root = "");

}  // namespace hearth::kernels
