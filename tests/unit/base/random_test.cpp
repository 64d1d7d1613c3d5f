#include "kernels/base/random.h"

#include <doctest/doctest.h>

#include <array>
#include <set>
#include <string>

#include "kernels/base/little_endian.h"

namespace hearth {
namespace {

TEST_CASE("SplitMix64 gives the sequence of its reference implementation for seed 1234567") {
  uint64_t state = 1234567;
  const uint64_t want[] = {6457827717110365317u, 3203168211198807973u, 9817491932198370423u,
                           4593380528125082431u, 16408922859458223821u};
  for (const uint64_t value : want) {
    state += kSplitMixStep;
    CHECK(splitmix(state) == value);
  }
}

TEST_CASE("two random numbers of the system differ") {
  std::set<uint64_t> seen;
  for (int i = 0; i < 64; ++i) seen.insert(random_bits());
  CHECK(seen.size() == 64);
  std::array<std::byte, 32> bytes{};
  REQUIRE(fill_random(bytes));
  CHECK(bytes != std::array<std::byte, 32>{});
}

TEST_CASE("little-endian numbers in strings") {
  std::string bytes;
  append_u32(bytes, 0x80000001u);
  append_u64(bytes, 0xFEDCBA9876543210u);
  append_little_endian(bytes, 0x1FF, 1);
  CHECK(bytes == std::string("\x01\x00\x00\x80\x10\x32\x54\x76\x98\xBA\xDC\xFE\xFF", 13));
  CHECK(load_u32(bytes.data()) == 0x80000001u);
  CHECK(load_u64(bytes.data() + 4) == 0xFEDCBA9876543210u);
  CHECK(load_little_endian(bytes.data() + 10, 3) == 0xFFFEDCu);
}

}  // namespace
}  // namespace hearth
