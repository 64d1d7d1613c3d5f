#include "engine/step_cost.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace hearth::engine {
namespace {

constexpr double kPriorDecodeUs = 20'000;
constexpr double kGain = 0.3;
constexpr double kMinPrefillUs = 0.01;
constexpr double kMaxTokens = 1 << 24;

double average(double known, double seen) {
  return known + kGain * (std::clamp(seen, 0.5 * known, 2.0 * known) - known);
}

}  // namespace

int StepCost::bucket(int32_t rows) {
  const auto width = std::bit_width(static_cast<uint32_t>(std::max(1, rows) - 1));
  return std::min(kBuckets - 1, static_cast<int>(width));
}

double StepCost::decode_us(int32_t rows) const {
  const int wanted = bucket(rows);
  for (int distance = 0; distance < kBuckets; ++distance) {
    // Fewer rows first: too low an estimate makes a step too short, which costs less than a gap.
    for (const int index : {wanted - distance, wanted + distance}) {
      if (index < 0 || index >= kBuckets) continue;
      const double us = decode_us_[static_cast<size_t>(index)];
      if (us > 0) return us;
    }
  }
  return kPriorDecodeUs;
}

int32_t StepCost::tokens_beside_decode(int32_t decode_rows, double stretch) const {
  const double room_us = std::max(0.0, stretch - 1.0) * decode_us(decode_rows);
  return static_cast<int32_t>(std::clamp(room_us / prefill_us_, 1.0, kMaxTokens));
}

double StepCost::base_us(int32_t decode_rows) const {
  const double known = decode_us_[static_cast<size_t>(bucket(decode_rows))];
  return decode_rows > 0 ? decode_us(decode_rows) : known;
}

int32_t StepCost::tokens_alone(int64_t step_us) const {
  const double room_us = static_cast<double>(step_us) - base_us(0);
  return static_cast<int32_t>(std::clamp(room_us / prefill_us_, 1.0, kMaxTokens));
}

void StepCost::measured(int32_t decode_rows, int32_t prefill_tokens, int64_t step_us) {
  const double us = std::max<double>(1, static_cast<double>(step_us));
  if (prefill_tokens == 0) {
    if (decode_rows == 0) return;
    double& known = decode_us_[static_cast<size_t>(bucket(decode_rows))];
    known = known > 0 ? average(known, us) : us;
    return;
  }
  if (!prefill_measured_) {
    prefill_us_ = std::max(kMinPrefillUs, us / prefill_tokens);
    prefill_measured_ = true;
    return;
  }
  const double seen = (us - base_us(decode_rows)) / prefill_tokens;
  prefill_us_ = std::max(kMinPrefillUs, average(prefill_us_, seen));
}

}  // namespace hearth::engine
