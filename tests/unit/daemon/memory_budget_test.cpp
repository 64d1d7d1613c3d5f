#include "daemon/broker/residency/memory_budget.h"

#include <doctest/doctest.h>

namespace hearth::broker {
namespace {

TEST_CASE("a budget is for models alone; without one free memory counts, less what is promised") {
  const MemoryBudget fixed(100, [] { return uint64_t{1}; });
  CHECK(fixed.fits(40, {.bytes = 60, .to_come_bytes = 60}));
  CHECK_FALSE(fixed.fits(41, {.bytes = 60, .to_come_bytes = 0}));
  CHECK(fixed.hopeless(101));
  CHECK_FALSE(fixed.hopeless(100));

  const MemoryBudget free_memory(0, [] { return uint64_t{50}; });
  CHECK(free_memory.fits(50, {.bytes = 1000, .to_come_bytes = 0}));
  CHECK_FALSE(free_memory.fits(41, {.bytes = 1000, .to_come_bytes = 10}));
  CHECK_FALSE(free_memory.hopeless(1'000'000));

  MemoryBudget device(0, [] { return uint64_t{1}; });
  device.found_device(70,
                      {.bytes = 40, .to_come_bytes = 10});  // 30 of the 40 are taken: it has 100
  CHECK(device.fits(60, {.bytes = 40, .to_come_bytes = 40}));
  CHECK_FALSE(device.fits(61, {.bytes = 40, .to_come_bytes = 0}));

  const MemoryBudget unknown(0, [] { return uint64_t{0}; });
  CHECK(unknown.fits(1'000'000, {.bytes = 1000, .to_come_bytes = 10}));
}

TEST_CASE("prefixes of a GPU's models get half of the free, unpromised host memory") {
  CHECK(prefix_ram_share(40, 100, 0) == 40);
  CHECK(prefix_ram_share(60, 100, 0) == 50);
  CHECK(prefix_ram_share(60, 100, 30) == 35);
  CHECK(prefix_ram_share(60, 100, 100) == 0);
  CHECK(prefix_ram_share(60, 100, 1000) == 0);
  CHECK(prefix_ram_share(60, 0, 1000) == 60);  // not known
}

}  // namespace
}  // namespace hearth::broker
