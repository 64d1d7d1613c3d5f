#pragma once
// What a step costs, learned from measured steps. Pure logic.
//
//   T(rows, tokens) = decode_us(rows) + tokens * token_us
//
// Decode costs are kept per power of two of the row count, since weights are read once for all rows
// but attention is not. Measures enter as moving averages, each bounded to half .. double of what
// is known: a page fault or a suspended machine does not make the next step ten times too long.
// That attention makes later tokens of a prompt dearer is left to the average: chunks are small
// against the context where it matters.

#include <array>
#include <cstdint>

namespace hearth::engine {

class StepCost {
 public:
  /// Of a step with `rows` decode rows and nothing else; before it was measured, a prior of 20 ms.
  double decode_us(int32_t rows) const;
  /// A step with that many decode rows shall be a plain one, to learn what it costs: it never was,
  /// or not within the last kMaxUnmeasured steps.
  bool wants_plain_step(int32_t rows) const;
  /// What prefill may take of a step with `decode_rows` rows that shall last `stretch` plain
  /// decode steps, or of one without that shall last `step_us`.
  double prefill_room_us(int32_t decode_rows, double stretch, int64_t step_us) const;
  double token_us() const { return token_us_; }
  /// Prefill tokens that fit into `room_us`.
  int32_t tokens_within(double room_us) const;

  void measured(int32_t decode_rows, int32_t prefill_tokens, int64_t step_us);

 private:
  static constexpr int kBuckets = 24;
  static constexpr int32_t kMaxUnmeasured = 64;
  static int bucket(int32_t rows);
  /// The share of a step that its prefill tokens do not cost: weights are read once for all rows,
  /// so a step of prefill alone (0 rows) has that of one decode row, where it was measured.
  double base_us(int32_t decode_rows) const;

  struct Decode {
    double us = 0;           ///< 0: not measured
    int32_t unmeasured = 0;  ///< steps with so many rows, and prefill beside them, since
  };
  std::array<Decode, kBuckets> decode_{};
  double token_us_ = 32'000;  ///< the prior: a first chunk of a few tokens on any device
  bool prefill_measured_ = false;
};

}  // namespace hearth::engine
