#include "kernels/ops/half.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

namespace hearth::kernels {
namespace {

TEST_CASE("f16: every pattern survives a round trip through f32") {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto h = static_cast<uint16_t>(bits);
    const float f = f32_from_f16(h);
    if (std::isnan(f)) {
      CHECK(std::isnan(f32_from_f16(f16_from_f32(f))));
    } else if (f16_from_f32(f) != h) {
      FAIL_CHECK("pattern " << bits << " came back as " << f16_from_f32(f));
    }
  }
}

TEST_CASE("f16: rounds to nearest even between every two neighbours") {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const float low = f32_from_f16(static_cast<uint16_t>(bits));
    const float high = f32_from_f16(static_cast<uint16_t>(bits + 1));
    const float middle = 0.5f * (low + high);  // exact: f32 has 13 more bits
    const uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    const bool right = f16_from_f32(middle) == even &&
                       f16_from_f32(std::nextafterf(middle, 0.0f)) == bits &&
                       f16_from_f32(std::nextafterf(middle, 1e9f)) == bits + 1 &&
                       f16_from_f32(-middle) == (0x8000 | even);
    if (!right) FAIL_CHECK("between " << low << " and " << high);
  }
}

TEST_CASE("f16: known values, overflow and values below the least subnormal") {
  CHECK(f16_from_f32(1.0f) == 0x3c00);
  CHECK(f16_from_f32(-2.0f) == 0xc000);
  CHECK(f16_from_f32(65504.0f) == 0x7bff);
  CHECK(f16_from_f32(65519.996f) == 0x7bff);
  CHECK(f16_from_f32(65520.0f) == 0x7c00);
  CHECK(f16_from_f32(std::numeric_limits<float>::infinity()) == 0x7c00);
  CHECK(f16_from_f32(0x1p-24f) == 0x0001);
  CHECK(f16_from_f32(0x1p-25f) == 0x0000);
  CHECK(f16_from_f32(-0.0f) == 0x8000);
}

TEST_CASE("bf16: truncation, rounding to even and NaN") {
  CHECK(bf16_from_f32(1.0f) == 0x3f80);
  CHECK(bf16_from_f32(0x1.01p0f) == 0x3f80);  // halfway, even below
  CHECK(bf16_from_f32(0x1.03p0f) == 0x3f82);  // halfway, even above
  CHECK(bf16_from_f32(std::numeric_limits<float>::max()) == 0x7f80);
  CHECK(std::isnan(f32_from_bf16(bf16_from_f32(std::numeric_limits<float>::quiet_NaN()))));
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float f = f32_from_bf16(static_cast<uint16_t>(bits));
    if (!std::isnan(f) && bf16_from_f32(f) != bits) FAIL_CHECK("pattern " << bits);
  }
}

}  // namespace
}  // namespace hearth::kernels
