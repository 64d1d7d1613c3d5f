#include "models/quantize/fit_codes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "kernels/base/numbers.h"
#include "kernels/ops/half.h"
#include "kernels/quant/quant_layout.h"
#include "models/quantize/fit_block.h"

namespace hearth::models {
namespace {

using kernels::DType;
using kernels::f32_from_f16;
using kernels::QuantCodes;
using kernels::QuantLayout;
using kernels::QuantValues;

/// -n .. n - 1.
template <int kHalf>
constexpr std::array<int8_t, 2 * kHalf> integers() {
  std::array<int8_t, 2 * kHalf> levels{};
  for (int i = 0; i < 2 * kHalf; ++i) levels[i] = narrow<int8_t>(i - kHalf);
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

float max_code_of(DType type) {
  if (type == DType::kQ2_K) return 3;
  return type == DType::kQ5_1 || type == DType::kQ5_K ? 31 : 15;
}

/// The largest integer minimum of a sub-block; 0 for a type without.
int max_min_of(DType type) {
  if (type == DType::kQ2_K) return 15;
  return type == DType::kQ4_K || type == DType::kQ5_K ? 63 : 0;
}

/// How the integer scale of a sub-block is stored: as scale + offset, in `bits`; 0 bits: not at
/// all.
struct ScaleField {
  int bits;
  int offset;
};
ScaleField scale_field(DType type) {
  switch (type) {
    case DType::kQ2_K: return {4, 0};
    case DType::kQ4_K:
    case DType::kQ5_K: return {6, 0};
    case DType::kQ3_K:
    case DType::kIQ4_XS: return {6, 32};
    case DType::kQ6_K: return {8, 128};
    default: return {0, 0};
  }
}

uint16_t to_half(double value) {
  return kernels::f16_from_f32(static_cast<float>(std::clamp(value, -65504.0, 65504.0)));
}

constexpr double kLeastImportance = 1e-4;  // of the mean of a block
constexpr int kImprovements = 4;           // rounds at most, each of scales, units and codes

/// Fits the codes of one block: a search, then a few rounds that improve one part after another.
class BlockFit {
 public:
  BlockFit(DType type, std::span<const float> values, std::span<const double> weights)
      : type_(type),
        layout_(kernels::quant_layout(type)),
        values_(values),
        weights_(weights),
        sub_(32 / layout_.subs),
        num_subs_(values.size() / sub_) {}

  QuantCodes fit() const {
    if (type_ == DType::kMXFP4) return mxfp4();
    return improved(layout_.has_min ? with_mins() : without_mins());
  }

  double error_of(const QuantCodes& codes) const {
    float out[256];
    kernels::dequantize_codes(type_, codes, out);
    double error = 0;
    for (size_t i = 0; i < values_.size(); ++i) {
      const double miss = double{out[i]} - values_[i];
      error += weights_[i] * miss * miss;
    }
    return error;
  }

 private:
  // The integer scale of a sub-block, limited to its field. Q6_K stores an int8 as it is.
  uint8_t stored_scale(double scale) const {
    const auto [bits, offset] = scale_field(type_);
    const int code = static_cast<int>(std::clamp(std::nearbyint(scale), -512.0, 512.0));
    const int limited = std::clamp(code, -offset, (1 << bits) - 1 - offset);
    return static_cast<uint8_t>(type_ == DType::kQ6_K ? limited : limited + offset);
  }
  int scale_of(uint8_t stored) const {
    if (type_ == DType::kQ6_K) return static_cast<int8_t>(stored);
    return stored - scale_field(type_).offset;
  }

  /// Chooses the codes of a sub-block for a scale and a min; returns their error.
  double choose_codes(size_t sub, float scale, float min, uint8_t* q) const {
    const float most = max_code_of(type_);
    double error = 0;
    for (size_t i = 0; i < sub_; ++i) {
      const float value = values_[sub * sub_ + i];
      const float level = scale != 0 ? (value - min) / scale : 0.0f;
      double back = min;
      if (layout_.has_min) {
        q[i] = static_cast<uint8_t>(round_even(std::clamp(level, 0.0f, most)));
        back += double{scale} * q[i];
      } else {
        q[i] = levels_of(type_).nearest(level);
        back += double{scale} * levels_of(type_)[q[i]];
      }
      error += weights_[sub * sub_ + i] * (back - value) * (back - value);
    }
    return error;
  }

  /// Chooses all codes for the scales and mins in `codes`.
  void choose_all_codes(QuantCodes& codes) const {
    const QuantValues stored = kernels::values_of(type_, codes);
    for (size_t s = 0; s < num_subs_; ++s) {
      choose_codes(s, stored.scale[s], stored.min[s], codes.q + s * sub_);
    }
  }

  QuantCodes with_mins() const {
    std::array<ScaleAndMin, 16> fits;
    float largest_scale = 0;
    float largest_min = 0;
    for (size_t s = 0; s < num_subs_; ++s) {
      fits[s] = fit_scale_and_min(values_.subspan(s * sub_, sub_), weights_.subspan(s * sub_, sub_),
                                  max_code_of(type_), layout_.block == 256);
      largest_scale = std::max(largest_scale, fits[s].scale);
      largest_min = std::max(largest_min, -fits[s].min);
    }
    QuantCodes codes{};
    if (layout_.block == 32) {
      codes.d = to_half(fits[0].scale);
      codes.dmin = to_half(fits[0].min);
    } else {
      const double most = max_min_of(type_);
      codes.d = to_half(largest_scale / most);
      codes.dmin = to_half(largest_min / most);
      const float d = f32_from_f16(codes.d);
      const float dmin = f32_from_f16(codes.dmin);
      for (size_t s = 0; s < num_subs_; ++s) {
        codes.scale[s] = d > 0 ? stored_scale(fits[s].scale / d) : uint8_t{0};
        codes.min[s] = dmin > 0 ? stored_scale(-fits[s].min / dmin) : uint8_t{0};
      }
    }
    choose_all_codes(codes);
    return codes;
  }

  QuantCodes without_mins() const {
    std::array<float, 16> fits{};
    float largest = 0;
    for (size_t s = 0; s < num_subs_; ++s) {
      fits[s] = fit_scale(values_.subspan(s * sub_, sub_), weights_.subspan(s * sub_, sub_),
                          levels_of(type_));
      if (std::abs(fits[s]) > std::abs(largest)) largest = fits[s];
    }
    QuantCodes codes{};
    if (layout_.block == 32) {
      codes.d = to_half(largest);
    } else {
      // The largest scale maps to the negative end, which reaches one further.
      codes.d = to_half(double{largest} / -scale_field(type_).offset);
      const float d = f32_from_f16(codes.d);
      for (size_t s = 0; s < num_subs_; ++s)
        codes.scale[s] = stored_scale(d != 0 ? fits[s] / d : 0);
    }
    choose_all_codes(codes);
    return codes;
  }

  /// The d, and dmin where it is stored, with the least error for the chosen integers.
  void fit_units(QuantCodes& codes) const {
    QuantCodes unit = codes;
    unit.d = unit.dmin = 0x3c00;  // 1
    const QuantValues ones = kernels::values_of(type_, unit);
    double qq = 0, mm = 0, qm = 0, qx = 0, mx = 0;
    for (size_t i = 0; i < values_.size(); ++i) {
      const double w = weights_[i], x = values_[i], m = ones.min[i / sub_];
      const double q = double{ones.scale[i / sub_]} * ones.q[i];
      qq += w * q * q;
      mm += w * m * m;
      qm += w * q * m;
      qx += w * q * x;
      mx += w * m * x;
    }
    if (!layout_.has_min) {
      if (qq > 0) codes.d = to_half(qx / qq);
      return;
    }
    const double determinant = qq * mm - qm * qm;
    if (!(determinant > 1e-9 * qq * mm)) {
      if (mm == 0 && qq > 0 && qx > 0) codes.d = to_half(qx / qq);
      return;
    }
    const double d = (mm * qx - qm * mx) / determinant;
    const double dmin = (qq * mx - qm * qx) / determinant;
    if (d <= 0 || (layout_.block == 256 && dmin < 0)) return;
    codes.d = to_half(d);
    codes.dmin = to_half(dmin);
  }

  /// Moves the integer scale and min of each sub-block by at most one, to where codes fit best.
  void move_scales(QuantCodes& codes) const {
    const int max_min = max_min_of(type_);
    std::array<double, 16> best;
    best.fill(1e300);
    QuantCodes moved = codes;
    for (int by = -1; by <= 1; ++by) {
      for (int min_by = max_min > 0 ? -1 : 0; min_by <= (max_min > 0 ? 1 : 0); ++min_by) {
        QuantCodes next = codes;
        for (size_t s = 0; s < num_subs_; ++s) {
          next.scale[s] = stored_scale(scale_of(codes.scale[s]) + by);
          next.min[s] = narrow<uint8_t>(std::clamp(codes.min[s] + min_by, 0, max_min));
        }
        const QuantValues stored = kernels::values_of(type_, next);
        for (size_t s = 0; s < num_subs_; ++s) {
          const double error = choose_codes(s, stored.scale[s], stored.min[s], next.q + s * sub_);
          if (error >= best[s]) continue;
          best[s] = error;
          moved.scale[s] = next.scale[s];
          moved.min[s] = next.min[s];
          std::copy_n(next.q + s * sub_, sub_, moved.q + s * sub_);
        }
      }
    }
    codes = moved;
  }

  QuantCodes improved(QuantCodes codes) const {
    double error = error_of(codes);
    for (int round = 0; round < kImprovements; ++round) {
      QuantCodes next = codes;
      if (layout_.block == 256) move_scales(next);
      fit_units(next);
      choose_all_codes(next);
      const double now = error_of(next);
      if (!(now < error)) break;
      error = now;
      codes = next;
    }
    return codes;
  }

  QuantCodes mxfp4() const {
    float largest = 0;
    for (const float x : values_) largest = std::max(largest, std::abs(x));
    QuantCodes best{};
    if (largest == 0) return best;
    // 12 * 2^(e - 128) is near the largest value.
    const int estimate = static_cast<int>(std::floor(std::log2(largest / 6))) + 127;
    double best_error = 1e300;
    for (int e = std::clamp(estimate - 1, 0, 254); e <= std::clamp(estimate + 1, 0, 254); ++e) {
      QuantCodes codes{};
      codes.d = narrow<uint16_t>(e);
      const float scale = kernels::half_scale_of_e8m0(narrow<uint8_t>(e));
      for (size_t i = 0; i < values_.size(); ++i) {
        const float level = kFp4Levels[kFp4Levels.nearest(values_[i] / scale)];
        const auto* at = std::find(std::begin(kernels::kFp4Values), std::end(kernels::kFp4Values),
                                   static_cast<int8_t>(level));
        codes.q[i] = narrow<uint8_t>(at - std::begin(kernels::kFp4Values));
      }
      const double error = error_of(codes);
      if (error < best_error) {
        best_error = error;
        best = codes;
      }
    }
    return best;
  }

  DType type_;
  QuantLayout layout_;
  std::span<const float> values_;
  std::span<const double> weights_;
  size_t sub_;  // values that share a scale
  size_t num_subs_;
};

/// The weight of each value's error: mean(x^2) + x^2 of its sub-block.
std::array<double, 256> own_weights(DType type, std::span<const float> values) {
  const size_t sub = 32 / kernels::quant_layout(type).subs;
  std::array<double, 256> weights;
  for (size_t first = 0; first < values.size(); first += sub) {
    double mean = 0;
    for (const float x : values.subspan(first, sub)) mean += double{x} * x / as_double(sub);
    for (size_t i = first; i < first + sub; ++i) weights[i] = mean + double{values[i]} * values[i];
  }
  return weights;
}

}  // namespace

QuantCodes fit_codes(DType type, std::span<const float> values, std::span<const float> importance) {
  const size_t count = values.size();
  std::array<double, 256> weights = own_weights(type, values);
  const QuantCodes plain = BlockFit(type, values, std::span(weights).first(count)).fit();
  double mean = 0;
  for (const float x : importance) mean += double{x} / as_double(count);
  if (mean <= 0) return plain;
  for (size_t i = 0; i < count; ++i) {
    // The text may have missed what an input of little importance is for.
    weights[i] = (importance[i] + kLeastImportance * mean) * std::sqrt(weights[i]);
  }
  const BlockFit fit(type, values, std::span(weights).first(count));
  const QuantCodes weighted = fit.fit();
  return fit.error_of(plain) < fit.error_of(weighted) ? plain : weighted;
}

}  // namespace hearth::models
