#include "kernels/ops/elastic_memory.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "kernels/ops.h"

namespace hearth::kernels {
namespace {

constexpr size_t kMiB = 1 << 20;

TEST_CASE("ranges are backed and given back; a granule stays while a range has a part of it") {
  const OpTable ops = reference_ops();
  REQUIRE(ops.elastic->granule == 2 * kMiB);
  auto reserved = ElasticBuffer::reserve(ops, 7 * kMiB + 100, "test");
  REQUIRE(reserved.ok());
  ElasticBuffer memory = std::move(reserved).value();
  CHECK(memory.backed_bytes() == 0);
  const auto fill = [&](size_t begin, size_t end, int value) {
    std::fill(memory.data() + begin, memory.data() + end, std::byte(value));
  };
  const auto all = [&](size_t begin, size_t end, int value) {
    return std::all_of(memory.data() + begin, memory.data() + end,
                       [value](std::byte b) { return b == std::byte(value); });
  };

  REQUIRE(memory.back(0, 3 * kMiB));
  CHECK(memory.backed_bytes() == 4 * kMiB);
  CHECK(all(0, 3 * kMiB, 0));
  fill(0, 3 * kMiB, 1);
  REQUIRE(memory.back(3 * kMiB, 6 * kMiB));
  CHECK(memory.backed_bytes() == 6 * kMiB);
  fill(3 * kMiB, 6 * kMiB, 2);
  REQUIRE(memory.back(6 * kMiB, 7 * kMiB + 100));  // its granule ends with the reservation
  CHECK(memory.backed_bytes() == 7 * kMiB + 100);
  fill(6 * kMiB, 7 * kMiB + 100, 3);

  memory.give_back(3 * kMiB, 6 * kMiB);
  CHECK(memory.backed_bytes() == 5 * kMiB + 100);
  CHECK(all(0, 3 * kMiB, 1));
  CHECK(all(6 * kMiB, 7 * kMiB + 100, 3));
  REQUIRE(memory.back(3 * kMiB, 6 * kMiB));
  CHECK(all(4 * kMiB, 6 * kMiB, 0));  // fresh memory
  memory.give_back(0, 3 * kMiB);
  memory.give_back(6 * kMiB, 7 * kMiB + 100);
  CHECK(memory.backed_bytes() == 4 * kMiB);
  memory.give_back(3 * kMiB, 6 * kMiB);
  CHECK(memory.backed_bytes() == 0);
  CHECK(memory.back(kMiB, kMiB));
  CHECK(memory.backed_bytes() == 0);
}

TEST_CASE("more memory than there is: an error with its size, or a range that stays unbacked") {
  OpTable ops = reference_ops();
  const auto refused = ElasticBuffer::reserve(ops, SIZE_MAX / 2 - kMiB, "KV blocks");
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == ErrorCode::kOutOfMemory);

  ElasticMemory scarce = *ops.elastic;
  scarce.back = [](void*, std::byte*, size_t) { return false; };
  ops.elastic = &scarce;
  auto reserved = ElasticBuffer::reserve(ops, 4 * kMiB, "test");
  REQUIRE(reserved.ok());
  CHECK_FALSE(reserved->back(0, kMiB));
  CHECK(reserved->backed_bytes() == 0);
}

TEST_CASE("without elastic memory all of a buffer is always backed") {
  OpTable ops = reference_ops();
  ops.elastic = nullptr;
  auto reserved = ElasticBuffer::reserve(ops, 3 * kMiB, "test");
  REQUIRE(reserved.ok());
  CHECK(reserved->backed_bytes() == 3 * kMiB);
  CHECK(reserved->back(0, kMiB));
  reserved->give_back(0, kMiB);
  CHECK(reserved->backed_bytes() == 3 * kMiB);
}

}  // namespace
}  // namespace hearth::kernels
