#include "models/weights/coarse_rows.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/base/check.h"
#include "kernels/ops/half.h"
#include "kernels/quant/quant_types.h"

namespace hearth::models {
namespace {

using kernels::DType;

constexpr size_t kBlock = 32;
constexpr size_t kBlockBytes = 2 + kBlock / 2;
constexpr uint16_t kHalfNan = 0x7e00;

void encode_block(const float* x, std::byte* out) {
  float low = 0, high = 0;
  bool finite = true;
  for (size_t i = 0; i < kBlock; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
    finite = finite && std::isfinite(x[i]);
  }
  const float scale = (-low > high ? low : high) / -8;
  const uint16_t d = finite ? kernels::f16_from_f32(scale) : kHalfNan;
  std::memcpy(out, &d, sizeof d);
  const float inverse = finite && scale != 0 ? 1 / scale : 0;
  const auto code = [&](size_t i) {
    const float rounded = finite ? x[i] * inverse + 8.5f : 0;
    return uint8_t(std::clamp(rounded, 0.0f, 15.0f));
  };
  for (size_t i = 0; i < kBlock / 2; ++i) {
    out[2 + i] = std::byte(code(i) | code(i + kBlock / 2) << 4);
  }
}

}  // namespace

bool can_be_coarser(DType type, int64_t cols) {
  const kernels::DTypeInfo& type_info = kernels::info(type);
  const bool many_bits = 8 * type_info.block_bytes > 5 * type_info.block_elements;
  return type_info.usable_as_weight && many_bits && cols % int64_t{kBlock} == 0;
}

std::vector<std::byte> coarse_rows(DType type, std::span<const std::byte> rows) {
  const kernels::DTypeInfo& type_info = kernels::info(type);
  // Whole blocks of both types.
  const size_t elements = std::max<size_t>(kBlock, type_info.block_elements);
  const size_t bytes = kernels::bytes_of(type, elements);
  HEARTH_CHECK(rows.size() % bytes == 0, "{} bytes of {}", rows.size(), type_info.name);
  std::vector<std::byte> out(rows.size() / bytes * (elements / kBlock * kBlockBytes));
  std::byte* to = out.data();
  float values[256];
  HEARTH_CHECK(elements <= std::size(values), "blocks of {}", elements);
  for (size_t at = 0; at < rows.size(); at += bytes) {
    kernels::dequantize(type, rows.subspan(at, bytes), {values, elements});
    for (size_t i = 0; i < elements; i += kBlock, to += kBlockBytes) encode_block(values + i, to);
  }
  return out;
}

}  // namespace hearth::models
