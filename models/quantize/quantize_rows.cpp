#include "models/quantize/quantize_rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/ops/half.h"
#include "kernels/quant/quant_layout.h"
#include "kernels/quant/quant_types.h"
#include "models/gguf/encode_floats.h"
#include "models/quantize/fit_block.h"
#include "models/quantize/put_together.h"

namespace hearth::models {
namespace {

using kernels::DType;
using kernels::f32_from_f16;
using kernels::QuantCodes;
using kernels::QuantLayout;

/// -n .. n - 1.
template <int kHalf>
constexpr std::array<int8_t, 2 * kHalf> integers() {
  std::array<int8_t, 2 * kHalf> levels{};
  for (int i = 0; i < 2 * kHalf; ++i) levels[i] = static_cast<int8_t>(i - kHalf);
  return levels;
}
constexpr auto kFour = integers<4>();
constexpr auto kEight = integers<8>();
constexpr auto kSixteen = integers<16>();
constexpr auto kThirtyTwo = integers<32>();
constexpr std::array<int8_t, 15> kFp4Sorted = {-12, -8, -6, -4, -3, -2, -1, 0,
                                               1,   2,  3,  4,  6,  8,  12};

constexpr Levels kQ3Levels(kFour);
constexpr Levels kQ4Levels(kEight);
constexpr Levels kQ5Levels(kSixteen);
constexpr Levels kQ6Levels(kThirtyTwo);
constexpr Levels kIq4Levels(kernels::kIq4Values);
constexpr Levels kFp4Levels(kFp4Sorted);

/// The levels of a type without mins.
const Levels& levels_of(DType type) {
  switch (type) {
    case DType::kQ3_K: return kQ3Levels;
    case DType::kQ4_0: return kQ4Levels;
    case DType::kQ5_0: return kQ5Levels;
    case DType::kQ6_K: return kQ6Levels;
    default: return kIq4Levels;
  }
}

int max_code_of(DType type) {
  if (type == DType::kQ2_K) return 3;
  return type == DType::kQ5_1 || type == DType::kQ5_K ? 31 : 15;
}

uint16_t to_half(float value) {
  return kernels::f16_from_f32(std::clamp(value, -65504.0f, 65504.0f));
}

/// Chooses the codes of `values` for the scale and min as they will be stored.
void choose_codes(DType type, std::span<const float> values, float scale, float min, uint8_t* q) {
  const bool has_min = kernels::quant_layout(type).has_min;
  for (size_t i = 0; i < values.size(); ++i) {
    const float level = scale != 0 ? (values[i] - min) / scale : 0.0f;
    if (has_min) {
      const auto max_code = static_cast<float>(max_code_of(type));
      q[i] = static_cast<uint8_t>(std::clamp(std::nearbyint(level), 0.0f, max_code));
    } else {
      q[i] = levels_of(type).nearest(level);
    }
  }
}

/// Chooses all codes of a block for the scales and mins in `codes`.
void choose_all_codes(DType type, std::span<const float> values, QuantCodes& codes) {
  const kernels::QuantValues stored = kernels::values_of(type, codes);
  const size_t sub = 32 / kernels::quant_layout(type).subs;
  for (size_t at = 0; at < values.size(); at += sub) {
    choose_codes(type, values.subspan(at, sub), stored.scale[at / sub], stored.min[at / sub],
                 codes.q + at);
  }
}

double error_of(DType type, std::span<const float> values, const QuantCodes& codes) {
  float out[256];
  kernels::dequantize_codes(type, codes, out);
  double error = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double miss = double{out[i]} - values[i];
    error += miss * miss;
  }
  return error;
}

QuantCodes with_mins(DType type, std::span<const float> values) {
  const QuantLayout layout = kernels::quant_layout(type);
  const size_t sub = 32 / layout.subs;
  const size_t count = values.size() / sub;
  std::array<ScaleAndMin, 16> fits;
  float largest_scale = 0;
  float largest_min = 0;
  for (size_t s = 0; s < count; ++s) {
    fits[s] =
        fit_scale_and_min(values.subspan(s * sub, sub), max_code_of(type), layout.block == 256);
    largest_scale = std::max(largest_scale, fits[s].scale);
    largest_min = std::max(largest_min, -fits[s].min);
  }
  QuantCodes codes{};
  if (layout.block == 32) {
    codes.d = to_half(fits[0].scale);
    codes.dmin = to_half(fits[0].min);
  } else {
    const float max_code = type == DType::kQ2_K ? 15 : 63;
    codes.d = to_half(largest_scale / max_code);
    codes.dmin = to_half(largest_min / max_code);
    const auto code = [&](float value, uint16_t unit) {
      const float one = f32_from_f16(unit);
      if (one <= 0) return uint8_t{0};
      return static_cast<uint8_t>(std::clamp(std::nearbyint(value / one), 0.0f, max_code));
    };
    for (size_t s = 0; s < count; ++s) {
      codes.scale[s] = code(fits[s].scale, codes.d);
      codes.min[s] = code(-fits[s].min, codes.dmin);
    }
  }
  choose_all_codes(type, values, codes);
  return codes;
}

/// The d with the least squared error for the chosen codes.
uint16_t best_d(DType type, std::span<const float> values, const QuantCodes& codes) {
  QuantCodes unit = codes;
  unit.d = 0x3c00;  // 1
  float out[256];
  kernels::dequantize_codes(type, unit, out);
  double with_x = 0;
  double with_itself = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    with_x += double{out[i]} * values[i];
    with_itself += double{out[i]} * out[i];
  }
  return with_itself > 0 ? to_half(static_cast<float>(with_x / with_itself)) : codes.d;
}

QuantCodes without_mins(DType type, std::span<const float> values) {
  const QuantLayout layout = kernels::quant_layout(type);
  const size_t sub = 32 / layout.subs;
  const size_t count = values.size() / sub;
  std::array<float, 16> fits{};
  float largest = 0;
  for (size_t s = 0; s < count; ++s) {
    fits[s] = fit_scale(values.subspan(s * sub, sub), levels_of(type));
    if (std::abs(fits[s]) > std::abs(largest)) largest = fits[s];
  }
  QuantCodes codes{};
  if (layout.block == 32) {
    codes.d = to_half(largest);
  } else {
    // The largest scale maps to the negative end, which reaches one further.
    const float half = type == DType::kQ6_K ? 128 : 32;
    codes.d = to_half(largest / -half);
    const float d = f32_from_f16(codes.d);
    for (size_t s = 0; s < count; ++s) {
      const float scale = d != 0 ? std::clamp(std::nearbyint(fits[s] / d), -half, half - 1) : 0;
      codes.scale[s] =
          static_cast<uint8_t>(static_cast<int>(scale) + (type == DType::kQ6_K ? 0 : 32));
    }
  }
  choose_all_codes(type, values, codes);
  QuantCodes refined = codes;
  refined.d = best_d(type, values, codes);
  choose_all_codes(type, values, refined);
  return error_of(type, values, refined) < error_of(type, values, codes) ? refined : codes;
}

QuantCodes mxfp4(std::span<const float> values) {
  float largest = 0;
  for (const float x : values) largest = std::max(largest, std::abs(x));
  QuantCodes best{};
  if (largest == 0) return best;
  // 12 * 2^(e - 128) is near the largest value.
  const int estimate = static_cast<int>(std::floor(std::log2(largest / 6))) + 127;
  double best_error = 1e300;
  for (int e = std::clamp(estimate - 1, 0, 254); e <= std::clamp(estimate + 1, 0, 254); ++e) {
    QuantCodes codes{};
    codes.d = static_cast<uint16_t>(e);
    const float scale = kernels::half_scale_of_e8m0(static_cast<uint8_t>(e));
    for (size_t i = 0; i < values.size(); ++i) {
      const float level = kFp4Levels[kFp4Levels.nearest(values[i] / scale)];
      const auto* at = std::find(std::begin(kernels::kFp4Values), std::end(kernels::kFp4Values),
                                 static_cast<int8_t>(level));
      codes.q[i] = static_cast<uint8_t>(at - std::begin(kernels::kFp4Values));
    }
    const double error = error_of(DType::kMXFP4, values, codes);
    if (error < best_error) {
      best_error = error;
      best = codes;
    }
  }
  return best;
}

QuantCodes codes_of(DType type, std::span<const float> values) {
  if (type == DType::kMXFP4) return mxfp4(values);
  return kernels::quant_layout(type).has_min ? with_mins(type, values) : without_mins(type, values);
}

}  // namespace

Result<std::vector<std::byte>> quantize_rows(DType type, std::span<const float> values,
                                             int64_t cols) {
  const kernels::DTypeInfo& type_info = kernels::info(type);
  if (!type_info.usable_as_weight || !is_written(type)) {
    return Error::unsupported(fmt::format("no encoder for type {}", type_info.name));
  }
  if (cols <= 0 || cols % type_info.block_elements != 0 || values.size() % cols != 0) {
    return Error::unsupported(
        fmt::format("{} values in rows of {} in type {}, want whole rows of a multiple of {}",
                    values.size(), cols, type_info.name, type_info.block_elements));
  }
  // Searches square values and subtract them; below 1e30 both stay finite.
  const float most = type == DType::kF16             ? 65504.0f
                     : type == DType::kQ8_0          ? 65504.0f * 127
                     : type_info.block_elements == 1 ? std::numeric_limits<float>::max()
                                                     : 1e30f;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!(std::abs(values[i]) <= most)) {
      return Error::invalid(
          fmt::format("value {} is {}, {} holds up to {}", i, values[i], type_info.name, most));
    }
  }
  if (type == DType::kBF16) {
    std::vector<std::byte> out(values.size() * 2);
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t bits = kernels::bf16_from_f32(values[i]);
      std::memcpy(out.data() + 2 * i, &bits, 2);
    }
    return out;
  }
  if (kernels::quant_index(type) < 0) return encode_floats(type, values);
  std::vector<std::byte> out(kernels::bytes_of(type, values.size()));
  const size_t block = type_info.block_elements;
  for (size_t at = 0; at < values.size(); at += block) {
    put_together(type, codes_of(type, values.subspan(at, block)),
                 out.data() + at / block * type_info.block_bytes);
  }
  return out;
}

}  // namespace hearth::models
