#pragma once
// What a step costs, learned from measured steps: a plain decode step of so many rows, and each
// prefill token on top of it. Pure logic.
//
// Model: T(rows, tokens) = decode_us(rows) + tokens * prefill_us_per_token(). Decode costs are kept
// per power of two of the row count, since weights are read once for all rows but attention is not.
// Measures enter as moving averages, each bounded to half .. double of what is known: a page fault
// or a suspended machine does not make the next step ten times too long.

#include <array>
#include <cstdint>

namespace hearth::engine {

class StepCost {
 public:
  /// Of a step with `rows` decode rows and nothing else. The nearest measured row count answers
  /// where this one was not seen yet; before any, a prior of 20 ms.
  double decode_us(int32_t rows) const;
  double prefill_us_per_token() const { return prefill_us_; }

  /// Prefill tokens that fit beside `decode_rows` rows into `stretch` plain decode steps; at
  /// least 1.
  int32_t tokens_beside_decode(int32_t decode_rows, double stretch) const;
  /// Prefill tokens of a step without decode rows that shall last `step_us`; at least 1.
  int32_t tokens_alone(int64_t step_us) const;

  void measured(int32_t decode_rows, int32_t prefill_tokens, int64_t step_us);

 private:
  static constexpr int kBuckets = 24;
  static int bucket(int32_t rows);
  /// The share of a step that its prefill tokens do not cost: weights are read once for all rows,
  /// so a step of prefill alone (0 rows) has that of one decode row, where it was measured.
  double base_us(int32_t decode_rows) const;

  std::array<double, kBuckets> decode_us_{};  ///< 0: not measured
  double prefill_us_ = 1000;
  bool prefill_measured_ = false;
};

}  // namespace hearth::engine
