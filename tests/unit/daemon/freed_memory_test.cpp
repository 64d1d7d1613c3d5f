#include "daemon/broker/process/freed_memory.h"

#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "tests/skip.h"

namespace hearth::broker {
namespace {

constexpr int64_t kMiB = 1 << 20;

TEST_CASE("freed memory is returned once it was free for two looks in a row") {
  FreedMemory freed;
  CHECK_FALSE(freed.due({.resident = 30 * kMiB, .allocated = 10 * kMiB}));  // programs and tables
  CHECK_FALSE(freed.due({.resident = 90 * kMiB, .allocated = 70 * kMiB}));  // in use
  CHECK_FALSE(freed.due({.resident = 90 * kMiB, .allocated = 10 * kMiB}));
  CHECK_FALSE(freed.due({.resident = 90 * kMiB, .allocated = 65 * kMiB}));  // used again
  CHECK_FALSE(freed.due({.resident = 90 * kMiB, .allocated = 10 * kMiB}));
  CHECK(freed.due({.resident = 90 * kMiB, .allocated = 10 * kMiB}));
  freed.returned({.resident = 32 * kMiB, .allocated = 10 * kMiB});
  for (int i = 0; i < 5; ++i) {
    CHECK_FALSE(freed.due({.resident = 32 * kMiB, .allocated = 10 * kMiB}));
  }
}

TEST_CASE("memory that the system does not take back is not returned again and again") {
  FreedMemory freed;
  CHECK_FALSE(freed.due({.resident = 20 * kMiB, .allocated = 10 * kMiB}));
  CHECK_FALSE(freed.due({.resident = 90 * kMiB, .allocated = 10 * kMiB}));
  CHECK(freed.due({.resident = 90 * kMiB, .allocated = 10 * kMiB}));
  freed.returned({.resident = 90 * kMiB, .allocated = 10 * kMiB});
  for (int i = 0; i < 5; ++i) {
    CHECK_FALSE(freed.due({.resident = 90 * kMiB, .allocated = 10 * kMiB}));
  }
  // More of it is.
  CHECK_FALSE(freed.due({.resident = 99 * kMiB, .allocated = 10 * kMiB}));
  CHECK(freed.due({.resident = 99 * kMiB, .allocated = 10 * kMiB}));
}

TEST_CASE("memory between blocks in use goes back to the system") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  HEARTH_SKIP("the sanitizer's allocator keeps what was freed");
#endif
  return_freed_memory();  // earlier tests'
  const MemoryUse before = memory_use();
  FreedMemory freed;
  CHECK_FALSE(freed.due(before));
  std::vector<std::unique_ptr<std::vector<char>>> blocks;
  for (int i = 0; i < 4096; ++i)
    blocks.push_back(std::make_unique<std::vector<char>>(16 << 10, 'x'));
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (i % 64 != 0) blocks[i].reset();
  }
  CHECK(memory_use().resident > before.resident + 48 * kMiB);
  CHECK_FALSE(freed.due(memory_use()));
  CHECK(freed.due(memory_use()));
  return_freed_memory();
  freed.returned(memory_use());
  CHECK(memory_use().resident < before.resident + 16 * kMiB);
  CHECK_FALSE(freed.due(memory_use()));
}

}  // namespace
}  // namespace hearth::broker
