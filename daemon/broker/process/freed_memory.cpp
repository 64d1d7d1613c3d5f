#include "daemon/broker/process/freed_memory.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

namespace hearth::broker {

MemoryUse memory_use() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  const struct mallinfo2 blocks = ::mallinfo2();
  return {.resident = pages * ::sysconf(_SC_PAGESIZE),
          .allocated = static_cast<int64_t>(blocks.uordblks + blocks.hblkhd)};
}

void return_freed_memory() { ::malloc_trim(0); }

bool FreedMemory::due(const MemoryUse& use) {
  const int64_t beyond = use.resident - use.allocated;
  if (!std::exchange(known_, true)) least_ = beyond;
  least_ = std::min(least_, beyond);
  if (beyond < least_ + kWorthBytes) return waited_ = false;
  return std::exchange(waited_, true);
}

void FreedMemory::returned(const MemoryUse& use) {
  least_ = use.resident - use.allocated;
  waited_ = false;
}

}  // namespace hearth::broker
