#include "engine/step_cost.h"

#include <algorithm>
#include <bit>

namespace hearth::engine {
namespace {

constexpr double kPriorDecodeUs = 20'000;
constexpr double kGain = 0.4;
constexpr double kMinTokenUs = 0.01;
constexpr double kMaxTokens = 1 << 24;
/// A step with so many prefill tokens counts half as much as one with very many: the fewer they
/// are, the more of what is measured is something else.
constexpr double kFewTokens = 16;

double average(double known, double seen, double weight = 1) {
  return known + kGain * weight * (std::clamp(seen, 0.5 * known, 2.0 * known) - known);
}

}  // namespace

int StepCost::bucket(int32_t rows) {
  const auto width = std::bit_width(static_cast<uint32_t>(std::max(1, rows) - 1));
  return std::min(kBuckets - 1, static_cast<int>(width));
}

double StepCost::decode_us(int32_t rows) const {
  const double known = decode_[static_cast<size_t>(bucket(rows))].us;
  return known > 0 ? known : kPriorDecodeUs;
}

bool StepCost::wants_plain_step(int32_t rows) const {
  const Decode& decode = decode_[static_cast<size_t>(bucket(rows))];
  return decode.us == 0 || decode.unmeasured >= kMaxUnmeasured;
}

double StepCost::base_us(int32_t decode_rows) const {
  if (decode_rows > 0) return decode_us(decode_rows);
  return decode_[static_cast<size_t>(bucket(1))].us;
}

double StepCost::prefill_room_us(int32_t decode_rows, double stretch, int64_t step_us) const {
  if (decode_rows > 0) return (stretch - 1) * decode_us(decode_rows);
  return static_cast<double>(step_us) - base_us(0);
}

int32_t StepCost::tokens_within(double room_us) const {
  return static_cast<int32_t>(std::clamp(room_us / token_us_, 0.0, kMaxTokens));
}

void StepCost::measured(int32_t decode_rows, int32_t prefill_tokens, int64_t step_us) {
  const double us = std::max<double>(1, static_cast<double>(step_us));
  if (prefill_tokens == 0 && decode_rows == 0) return;
  Decode& decode = decode_[static_cast<size_t>(bucket(decode_rows))];
  if (prefill_tokens == 0) {
    decode.us = decode.us > 0 ? average(decode.us, us) : us;
    decode.unmeasured = 0;
    return;
  }
  if (decode_rows > 0) ++decode.unmeasured;
  if (!prefill_measured_) {
    token_us_ = std::max(kMinTokenUs, us / prefill_tokens);
    prefill_measured_ = true;
    return;
  }
  const double seen = (us - base_us(decode_rows)) / prefill_tokens;
  const double weight = prefill_tokens / (prefill_tokens + kFewTokens);
  token_us_ = std::max(kMinTokenUs, average(token_us_, seen, weight));
}

}  // namespace hearth::engine
