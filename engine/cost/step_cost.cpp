#include "engine/cost/step_cost.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "kernels/base/numbers.h"

namespace hearth::engine {
namespace {

constexpr double kPriorDecodeUs = 20'000;
/// Assumed before any measurement: on any device a first chunk is a few tokens.
constexpr double kPriorTokenUs = 32'000;
constexpr double kGain = 0.4;
/// Cost of a row beyond the only row count that was measured, relative to the step: low, so that it
/// is tried.
constexpr double kPriorRow = 0.05;
/// Points change more slowly than classes, because speculation compares two of them.
constexpr double kPointGain = 0.15;
constexpr double kMinTokenUs = 0.01;
constexpr double kMaxTokenUs = 1e9;
/// Measurements that a restored cost counts for: the next few may still correct it a lot.
constexpr int32_t kRestored = 2;
constexpr int32_t kMaxTokens = 1 << 24;
/// A step with this many prefill tokens counts half as much as one with very many: with few tokens,
/// most of the measured time is something else.
constexpr double kFewTokens = 16;
/// Positions of the first class; attention is a small part of a token's cost there.
constexpr int32_t kFirstClass = 256;

double moved_average(double known, double seen, double weight = 1) {
  return known + kGain * weight * (std::clamp(seen, 0.5 * known, 2.0 * known) - known);
}

}  // namespace

int StepCost::row_class(int32_t rows) {
  const int width = std::bit_width(static_cast<uint32_t>(std::max(1, rows) - 1));
  return std::min(kRowClasses - 1, width);
}

int StepCost::position_class(int32_t position) {
  const int width = std::bit_width(static_cast<uint32_t>(std::max(0, position) / kFirstClass));
  return std::min(kPositionClasses - 1, width);
}

int64_t StepCost::class_end(int position_class) { return int64_t{kFirstClass} << position_class; }

template <typename Fn>
void StepCost::for_each_class(const PrefillRun& run, const Fn& fn) {
  int64_t at = run.first;
  const int64_t end = at + run.count;
  for (int c = position_class(run.first); at < end && c < kPositionClasses; ++c) {
    const int64_t next = c + 1 < kPositionClasses ? std::min(end, class_end(c)) : end;
    fn(c, narrow<int32_t>(next - at));
    at = next;
  }
}

double StepCost::cost_us(int position_class) const {
  // Not measured: like the nearest class before it, which is a little too cheap, and the next
  // measurement corrects that; otherwise like the nearest after it, which is too expensive.
  for (int c = position_class; c >= 0; --c) {
    if (const double us = tokens_[c].us; us > 0) return us;
  }
  for (const Token& token : tokens_) {
    if (token.us > 0) return token.us;
  }
  return kPriorTokenUs;
}

double StepCost::token_us(int32_t position) const { return cost_us(position_class(position)); }

double StepCost::decode_us(int32_t rows) const {
  const double known = decode_[row_class(rows)].us;
  if (known > 0) return known;
  return decode_steps_ > 0 ? rows_us(rows) : kPriorDecodeUs;
}

size_t StepCost::point_of(int32_t rows) {
  rows = std::max(1, rows);
  return rows <= kExactRows ? rows - 1 : kExactRows + row_class(rows);
}

void StepCost::measure_point(int32_t rows, double us) {
  ++decode_steps_;
  Point& point = points_[point_of(rows)];
  if (point.measures == 0) {
    point.rows = rows;
    point.us = us;
  } else {
    // The very first step of a kind also maps memory, so the lower of the first two counts.
    const double gain = std::max(kPointGain, 1.0 / (1 + point.measures));
    const double seen = std::clamp(us, 0.5 * point.us, 2.0 * point.us);
    point.rows += gain * (rows - point.rows);
    point.us = point.measures == 1 ? std::min(point.us, us) : point.us + gain * (seen - point.us);
  }
  point.measures = std::min(point.measures + 1, 1 << 20);
  point.step = decode_steps_;
}

int64_t StepCost::steps_since(int32_t rows) const {
  const Point& point = points_[point_of(rows)];
  return point.measures > 0 ? decode_steps_ - point.step : INT64_MAX;
}

double StepCost::rows_us(int32_t rows) const {
  const auto believed = [this](const Point& point) {
    return point.measures > 0 && decode_steps_ - point.step < kForgotten;
  };
  // The last point measured is always used.
  const Point* below = nullptr;
  const Point* before = nullptr;  // the one below that
  const Point* above = nullptr;
  double least = 0;
  for (const Point& point : points_) {
    if (!believed(point)) continue;
    if (point.rows <= rows) {
      before = below;
      below = &point;
      least = std::max(least, point.us);
    } else if (above == nullptr) {
      above = &point;
    }
  }
  if (below == nullptr && above == nullptr) return kPriorDecodeUs;
  // Fewer rows than were ever measured cost no more than those.
  if (below == nullptr) return above->us;
  double slope = kPriorRow * below->us;
  if (above != nullptr) {
    slope = (above->us - below->us) / (above->rows - below->rows);
  } else if (before != nullptr && below->rows > before->rows) {
    slope = std::max((below->us - before->us) / (below->rows - before->rows), 0.0);
  }
  return std::max(least, below->us + slope * (rows - below->rows));
}

bool StepCost::wants_plain_step(int32_t rows) const {
  const Decode& decode = decode_[row_class(rows)];
  return decode.us == 0 || decode.unmeasured >= kMaxUnmeasured;
}

double StepCost::base_us(int32_t decode_rows) const {
  if (decode_rows > 0) return decode_us(decode_rows);
  return decode_[row_class(1)].us;
}

double StepCost::prefill_room_us(int32_t decode_rows, double stretch, int64_t step_us) const {
  if (decode_rows > 0) return (stretch - 1) * decode_us(decode_rows);
  return std::max(as_double(step_us), stretch * base_us(0)) - base_us(0);
}

int32_t StepCost::tokens_within(double room_us, int32_t first) const {
  int32_t tokens = 0;
  double left = std::max(0.0, room_us);
  for_each_class({first, kMaxTokens}, [&](int c, int32_t count) {
    if (left < 0) return;
    const double us = cost_us(c);
    const double fit = left / us;
    if (fit < count) {
      tokens += static_cast<int32_t>(fit);
      left = -1;
    } else {
      tokens += count;
      left -= count * us;
    }
  });
  return tokens;
}

double StepCost::prefill_us(const PrefillRun& run) const {
  double us = 0;
  for_each_class(run, [&](int c, int32_t count) { us += count * cost_us(c); });
  return us;
}

bool StepCost::knows(const PrefillRun& run) const {
  bool known = true;
  for_each_class(run, [&](int c, int32_t) {
    // The very first step also maps memory.
    known = known && tokens_[c].known;
  });
  return known;
}

MeasuredCosts StepCost::measured_costs() const {
  MeasuredCosts out;
  for (const Token& token : tokens_) out.token_us.push_back(token.known ? token.us : 0);
  return out;
}

void StepCost::restore(const MeasuredCosts& costs) {
  for (size_t c = 0; c < std::min(tokens_.size(), costs.token_us.size()); ++c) {
    const double us = costs.token_us[c];
    if (us >= kMinTokenUs && us <= kMaxTokenUs) tokens_[c] = {us, kRestored, true};
  }
}

void StepCost::measured(int32_t decode_rows, std::span<const PrefillRun> prefill, int64_t step_us) {
  const double us = std::max<double>(1, as_double(step_us));
  std::array<int32_t, kPositionClasses> tokens{};
  int32_t num_tokens = 0;
  for (const PrefillRun& run : prefill) {
    for_each_class(run, [&](int c, int32_t count) { tokens[c] += count; });
    num_tokens += run.count;
  }
  if (num_tokens == 0 && decode_rows == 0) return;
  Decode& decode = decode_[row_class(decode_rows)];
  if (num_tokens == 0) {
    decode.us = decode.us > 0 ? moved_average(decode.us, us) : us;
    decode.unmeasured = 0;
    measure_point(decode_rows, us);
    return;
  }
  if (decode_rows > 0) ++decode.unmeasured;

  double expected_us = 0;
  for (size_t c = 0; c < tokens.size(); ++c) expected_us += tokens[c] * cost_us(narrow<int>(c));
  const bool any = std::exchange(measured_prefill_, true);
  // How much more these tokens cost than expected. One step cannot separate its classes, so each
  // class changes by its share of the tokens.
  const double ratio = (us - base_us(decode_rows)) / expected_us;
  for (size_t c = 0; c < tokens.size(); ++c) {
    if (tokens[c] == 0) continue;
    const double known = cost_us(narrow<int>(c));
    Token& token = tokens_[c];
    token.known = token.known || (any && 4 * tokens[c] >= num_tokens);
    if (!any && token.measures == 0) {
      token.us = std::max(kMinTokenUs, known * ratio);
    } else if (token.measures < kSettled && 2 * tokens[c] > num_tokens) {
      token.us = std::max(kMinTokenUs, known * std::clamp(ratio, 0.125, 8.0));
      ++token.measures;
    } else {
      const double weight = tokens[c] / (num_tokens + kFewTokens);
      token.us = std::max(kMinTokenUs, moved_average(known, known * ratio, weight));
    }
  }
}

}  // namespace hearth::engine
