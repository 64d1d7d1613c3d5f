#include "kernels/host/host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "kernels/base/check.h"
#include "kernels/host/cgroup.h"

namespace hearth::kernels {
namespace {

// Smaller requests come from the heap, where sanitizers detect overruns.
constexpr size_t kMapFrom = size_t{1} << 20;

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

/// Bytes mapped for a request. Rounding to whole huge pages would leave a megabyte of every matrix
/// unused and resident, so the end lies in small pages.
size_t mapped_bytes(size_t bytes) { return round_up(bytes, sysconf(_SC_PAGESIZE)); }

/// Whole pages, aligned to a huge page; null if the system has no room.
std::byte* map_aligned(size_t size, int protection) {
  // Map one huge page more than needed and cut the ends.
  void* mapped = mmap(nullptr, size + kHugePage, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* first = static_cast<std::byte*>(mapped);
  const auto address = reinterpret_cast<uintptr_t>(first);
  const size_t skip = round_up(address, kHugePage) - address;
  if (skip > 0) munmap(first, skip);
  if (skip < kHugePage) munmap(first + skip + size, kHugePage - skip);
  madvise(first + skip, size, MADV_HUGEPAGE);  // only advice: without huge pages access is slower
  return first + skip;
}

/// MADV_POPULATE_WRITE, which headers before Linux 5.14 do not have.
constexpr int kPopulateWrite = 23;

}  // namespace

void* allocate_host(size_t bytes) {
  if (bytes > SIZE_MAX / 2) return nullptr;
  if (bytes < kMapFrom) {
    void* memory = nullptr;
    if (posix_memalign(&memory, 64, std::max<size_t>(bytes, 1)) != 0) return nullptr;
    std::memset(memory, 0, bytes);
    return memory;
  }
  return map_aligned(mapped_bytes(bytes), PROT_READ | PROT_WRITE);
}

void release_host(void* memory, size_t bytes) {
  if (bytes < kMapFrom) {
    std::free(memory);
  } else {
    munmap(memory, mapped_bytes(bytes));
  }
}

// ---- Memory that is backed in parts -----------------------------------------------------------

std::byte* reserve_host(size_t bytes) {
  return bytes > SIZE_MAX / 2 ? nullptr : map_aligned(mapped_bytes(bytes), PROT_NONE);
}

void release_reserved_host(std::byte* memory, size_t bytes) { munmap(memory, mapped_bytes(bytes)); }

// The pages are put in place at once, so that no step waits for faults. Before Linux 5.14 they
// come in when they are first written.
bool back_host(std::byte* begin, size_t bytes) {
  const size_t size = mapped_bytes(bytes);
  if (mprotect(begin, size, PROT_READ | PROT_WRITE) != 0) return false;
  if (madvise(begin, size, kPopulateWrite) == 0 || errno == EINVAL) return true;
  give_back_host(begin, bytes);
  return false;
}

void give_back_host(std::byte* begin, size_t bytes) {
  const size_t size = mapped_bytes(bytes);
  HEARTH_CHECK(madvise(begin, size, MADV_DONTNEED) == 0, "errno={}", errno);
  // Fails if the process has too many mappings. Then an access to this memory, which would be a
  // bug, goes undetected.
  mprotect(begin, size, PROT_NONE);
}

HostMemoryInfo host_memory_info(const char* root) {
  HostMemoryInfo info;
  std::ifstream meminfo(std::string(root) + "/proc/meminfo");
  std::string key;
  size_t kib = 0;
  std::string unit;
  while (meminfo >> key >> kib && std::getline(meminfo, unit)) {
    if (key == "MemTotal:") info.total_bytes = kib * 1024;
    if (key == "MemAvailable:") info.available_bytes = kib * 1024;
  }
  for (const std::string& group : cgroup_directories(root)) {
    const auto limit = read_cgroup_number(group + "/memory.max");
    if (!limit) continue;
    const auto used = read_cgroup_number(group + "/memory.current").value_or(0);
    info.total_bytes = std::min<size_t>(info.total_bytes, *limit);
    info.available_bytes =
        std::min<size_t>(info.available_bytes, *limit > used ? *limit - used : 0);
  }
  return info;
}

}  // namespace hearth::kernels
