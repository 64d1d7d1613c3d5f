// Memory that is backed in parts, on the device under test.

#include "kernels/ops/elastic_memory.h"
#include "tests/cuda/rig.h"

namespace hearth::tests {
namespace {

uint64_t bytes_in_use() { return runtime_counts().value_or(RuntimeCounts{}).bytes_in_use; }

}  // namespace

TEST_CASE("elastic memory: granules are backed with zeros, given back and backed again") {
  HEARTH_CUDA_TABLE(confirmed);
  CHECK(confirmed.elastic == nullptr);
  const OpTable ops = kernels::cuda_ops({.unconfirmed = true}).value();
  REQUIRE(ops.elastic != nullptr);
  const size_t granule = ops.elastic->granule;
  const uint64_t before = bytes_in_use();
  {
    auto made = kernels::ElasticBuffer::reserve(ops, 5 * granule + 100, "test");
    REQUIRE(made.ok());
    kernels::ElasticBuffer& buffer = *made;
    CHECK(bytes_in_use() == before);
    const auto read = [&](size_t at) {
      unsigned char byte = 7;
      ops.copy_to_host(ops.state.get(), &byte, buffer.data() + at, 1);
      return byte;
    };
    for (int round = 0; round < 2; ++round) {
      REQUIRE(buffer.back(0, granule + 1));  // two granules
      CHECK(buffer.backed_bytes() == 2 * granule);
      REQUIRE(buffer.back(granule + 1, granule + 2));  // a part of the second
      REQUIRE(buffer.back(5 * granule, 5 * granule + 100));
      for (const size_t at : {size_t{0}, granule, 2 * granule - 1, 5 * granule + 99}) {
        CHECK(read(at) == 0);
        const unsigned char written = 9;
        ops.copy_to_device(ops.state.get(), buffer.data() + at, &written, 1);
        CHECK(read(at) == 9);
      }
      if (runtime_counts()) CHECK(bytes_in_use() == before + 3 * granule);
      buffer.give_back(0, granule + 1);
      CHECK(buffer.backed_bytes() == granule + 100);
      CHECK(read(granule) == 9);  // the other part of this granule is still in use
      buffer.give_back(granule + 1, granule + 2);
      buffer.give_back(5 * granule, 5 * granule + 100);
      CHECK(bytes_in_use() == before);
    }
    REQUIRE(buffer.back(3 * granule, 4 * granule));  // released while backed
  }
  CHECK(bytes_in_use() == before);
}

}  // namespace hearth::tests
