#include "kernels/host/host_memory.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/host/host_arena.h"
#include "tests/unit/kernels/fake_root.h"

namespace hearth::kernels {
namespace {

TEST_CASE("host memory is zeroed and aligned, small or mapped") {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4097}, (size_t{1} << 20) - 1,
                             size_t{1} << 20, (size_t{5} << 20) + 3}) {
    auto* memory = static_cast<unsigned char*>(allocate_host(bytes));
    REQUIRE(memory != nullptr);
    CHECK(reinterpret_cast<uintptr_t>(memory) % 64 == 0);
    size_t not_zero = 0;
    for (size_t i = 0; i < bytes; ++i) not_zero += memory[i] != 0;
    CHECK(not_zero == 0);
    if (bytes > 0) memory[bytes - 1] = 1;
    release_host(memory, bytes);
  }
}

TEST_CASE("an impossible allocation is null, not a crash") {
  CHECK(allocate_host(SIZE_MAX) == nullptr);
  CHECK(allocate_host(SIZE_MAX / 2 - 1) == nullptr);
}

TEST_CASE("an arena's memory is zeroed, aligned, and its owner's alone") {
  std::vector<std::pair<std::shared_ptr<std::byte>, size_t>> held;
  {
    HostArena arena;
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4097}, size_t{3} << 20,
                               (size_t{300} << 20) + 5, size_t{64}, size_t{2} << 20}) {
      held.emplace_back(arena.allocate(bytes), bytes);
      REQUIRE(held.back().first != nullptr);
    }
    CHECK(arena.allocate(SIZE_MAX) == nullptr);
    CHECK(arena.allocate(SIZE_MAX / 2 - 1) == nullptr);
    held.emplace_back(arena.allocate(100), 100);  // in spite of those
  }
  std::erase_if(held, [](const auto& each) { return each.second == 4097; });
  for (size_t i = 0; i < held.size(); ++i) {
    const auto& [memory, bytes] = held[i];
    REQUIRE(memory != nullptr);
    CHECK(reinterpret_cast<uintptr_t>(memory.get()) % 64 == 0);
    if (bytes == 0) continue;
    CHECK(memory.get()[0] == std::byte{0});
    CHECK(memory.get()[bytes - 1] == std::byte{0});
    std::memset(memory.get(), 255, std::min(bytes, size_t{1} << 20));
    memory.get()[bytes - 1] = std::byte{255};
  }
}

#ifndef __SANITIZE_ADDRESS__
TEST_CASE("small matrices of a model share huge pages") {
  HostArena arena;
  const auto first = arena.allocate(1000);
  const auto second = arena.allocate(1000);
  CHECK(second.get() - first.get() == 1024);
  CHECK(reinterpret_cast<uintptr_t>(first.get()) % kHugePage == 0);
}

TEST_CASE("what an arena's owner no longer holds goes back to the system, in pages") {
  constexpr size_t kBytes = size_t{3} << 20;
  HostArena arena;
  const auto kept = arena.allocate(100);
  auto dropped = arena.allocate(kBytes);
  std::memset(dropped.get(), 1, kBytes);
  std::memset(kept.get(), 1, 100);
  const std::byte* inside = dropped.get() + kBytes / 2;  // of the chunk, which `kept` holds
  dropped.reset();
  CHECK(*inside == std::byte{0});
  CHECK(kept.get()[99] == std::byte{1});
}
#endif

TEST_CASE("memory is bounded by the tightest cgroup") {
  FakeRoot root;
  root.write("proc/meminfo", "MemTotal:  1000 kB\nMemFree:  100 kB\nMemAvailable:  600 kB\n");
  HostMemoryInfo info = host_memory_info(root.path().c_str());
  CHECK(info.total_bytes == 1000 * 1024);
  CHECK(info.available_bytes == 600 * 1024);

  root.write("proc/self/cgroup", "12:cpu:/v1\n0::/a/b\n");
  root.write("sys/fs/cgroup/a/b/memory.max", "max\n");
  root.write("sys/fs/cgroup/a/memory.max", "512000\n");
  root.write("sys/fs/cgroup/a/memory.current", "112000\n");
  info = host_memory_info(root.path().c_str());
  CHECK(info.total_bytes == 512000);
  CHECK(info.available_bytes == 400000);
}

}  // namespace
}  // namespace hearth::kernels
