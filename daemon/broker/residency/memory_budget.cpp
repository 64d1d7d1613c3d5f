#include "daemon/broker/residency/memory_budget.h"

#include <algorithm>

namespace hearth::broker {

uint64_t MemoryBudget::room(const InUse& in_use) const {
  const auto left = [](uint64_t all, uint64_t taken) { return all - std::min(all, taken); };
  if (budget_bytes_ > 0) return left(budget_bytes_, in_use.bytes);
  if (device_bytes_ > 0) return left(device_bytes_, in_use.bytes);
  const uint64_t available = available_();
  return available == 0 ? UINT64_MAX : left(available, in_use.to_come_bytes);
}

void MemoryBudget::found_device(uint64_t free_bytes, const InUse& others) {
  device_bytes_ = free_bytes + others.bytes - others.to_come_bytes;
}

uint64_t prefix_ram_share(uint64_t configured, uint64_t available, uint64_t promised) {
  if (available == 0) return configured;
  return std::min(configured, (available - std::min(available, promised)) / 2);
}

}  // namespace hearth::broker
