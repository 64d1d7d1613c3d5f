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

// ---- Memory that is backed in parts: whole huge pages, or to the end of a reservation ----------

/// Addresses alone, aligned to a huge page; access to them is a fault. Null if there are none left.
std::byte* reserve_host(size_t bytes);
void release_reserved_host(std::byte* memory, size_t bytes);
/// Zeroed memory in place of addresses alone. False, with nothing changed, if there is too little.
bool back_host(std::byte* begin, size_t bytes);
void give_back_host(std::byte* begin, size_t bytes);

struct HostMemoryInfo {
  size_t total_bytes = 0;      ///< usable by this process: RAM, or its cgroup's limit
  size_t available_bytes = 0;  ///< of that, currently unused
};
/// From /proc/meminfo and the cgroup limits (v2 memory.max of this process's group and its
/// parents). `root` is "" outside tests.
HostMemoryInfo host_memory_info(const char* root = "");

}  // namespace hearth::kernels
