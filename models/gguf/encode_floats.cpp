#include "models/gguf/encode_floats.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/base/check.h"
#include "kernels/ops/half.h"

namespace hearth::models {
namespace {

constexpr size_t kBlock = 32;
constexpr size_t kBlockBytes = 2 + kBlock;

void encode_q8_0_block(const float* x, std::byte* out) {
  float most = 0.0f;
  for (size_t i = 0; i < kBlock; ++i) most = std::max(most, std::fabs(x[i]));
  const uint16_t d = kernels::f16_from_f32(most / 127.0f);
  std::memcpy(out, &d, sizeof(d));
  const float inverse = most == 0.0f ? 0.0f : 127.0f / most;
  for (size_t i = 0; i < kBlock; ++i) {
    const auto q = static_cast<int8_t>(std::nearbyint(x[i] * inverse));
    std::memcpy(out + 2 + i, &q, 1);
  }
}

}  // namespace

std::vector<std::byte> encode_floats(kernels::DType dtype, std::span<const float> values) {
  std::vector<std::byte> out;
  switch (dtype) {
    case kernels::DType::kF32:
      out.resize(values.size_bytes());
      std::memcpy(out.data(), values.data(), values.size_bytes());
      return out;
    case kernels::DType::kF16:
      out.resize(values.size() * 2);
      for (size_t i = 0; i < values.size(); ++i) {
        const uint16_t half = kernels::f16_from_f32(values[i]);
        std::memcpy(out.data() + 2 * i, &half, sizeof(half));
      }
      return out;
    case kernels::DType::kQ8_0:
      HEARTH_CHECK(values.size() % kBlock == 0, "{} values", values.size());
      out.resize(values.size() / kBlock * kBlockBytes);
      for (size_t b = 0; b < values.size() / kBlock; ++b) {
        encode_q8_0_block(values.data() + b * kBlock, out.data() + b * kBlockBytes);
      }
      return out;
    default: break;
  }
  HEARTH_CHECK(false, "no encoder for {}", kernels::info(dtype).name);
  return out;
}

}  // namespace hearth::models
