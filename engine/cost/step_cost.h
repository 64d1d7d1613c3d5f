#pragma once
// The cost of a step in time, learned from measured steps. Pure logic.
//
//   T = base(decode rows) + sum over prefill tokens of token_us(position)
//
// Decode costs are kept per power of two of the row count, since weights are read once for all rows
// but attention is not. Costs of prefill tokens are kept per class of position; each class is twice
// as long as the one before. Attention makes tokens late in a long prompt more expensive, and
// neither the beginning of the next prompt nor the rest of this one should be planned at the wrong
// cost. (One cost and a slope, fitted by least squares, were tried: late in a prompt the fit makes
// the tokens themselves free.) Measurements enter as moving averages, each bounded to half ..
// double of the known value, so that a page fault or a suspended machine does not distort the next
// step. Only the first few of a cost are taken within 1/8 .. 8 times, as they replace an
// assumption.
//
// The cost of decode rows is also kept as points (rows, us), one per row count up to kExactRows,
// and rows_us interpolates between them: speculation needs this, where a batch of three sequences
// may become one of seven rows. A point that was not measured for kForgotten decode steps is
// ignored if newer ones exist, so that a row count that once looked expensive is tried again.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace hearth::engine {

/// Prefill tokens of one sequence in a step: positions [first, first + count).
struct PrefillRun {
  int32_t first = 0;
  int32_t count = 0;
};

/// Measured costs that a later engine of the same model on the same machine can reuse.
struct MeasuredCosts {
  std::vector<double> token_us;  ///< of a prefill token, per class of position; 0: not measured
};

class StepCost {
 public:
  /// Of a step with `rows` decode rows and nothing else; 20 ms until it is measured.
  double decode_us(int32_t rows) const;
  /// The same, interpolated from the points around it; never less than for fewer rows.
  double rows_us(int32_t rows) const;
  bool measured_any() const { return decode_steps_ > 0; }
  bool measured_prefill() const { return measured_prefill_; }
  /// Decode steps since one of exactly this many rows (up to kExactRows) was measured; a very large
  /// number if none was.
  int64_t steps_since(int32_t rows) const;
  /// Whether a step with that many decode rows should be a plain one, to measure its cost: it never
  /// was measured, or not within the last kMaxUnmeasured steps.
  bool wants_plain_step(int32_t rows) const;

  /// The time, in us, that prefill may take in a step with `decode_rows` rows that may last
  /// `stretch` plain steps. A step without decode rows may last `step_us`, or `stretch` plain steps
  /// of one row if that is longer: if reading the weights takes most of `step_us`, hardly a token
  /// would fit.
  double prefill_room_us(int32_t decode_rows, double stretch, int64_t step_us) const;
  /// Prefill tokens from position `first` on that fit into `room_us`.
  int32_t tokens_within(double room_us, int32_t first) const;
  /// The time that the tokens of `run` add to a step, in us.
  double prefill_us(const PrefillRun& run) const;
  /// Whether steps were measured at all positions of `run`, by this engine or the one that made the
  /// restored costs. Otherwise prefill_us is an assumption, which may be planned with but not
  /// shown.
  bool knows(const PrefillRun& run) const;
  /// Of one prefill token at `position`, in us.
  double token_us(int32_t position) const;

  /// A step with these rows took `step_us`.
  void measured(int32_t decode_rows, std::span<const PrefillRun> prefill, int64_t step_us);

  MeasuredCosts measured_costs() const;
  /// Takes costs of an earlier engine, before anything was measured. Impossible values are ignored.
  void restore(const MeasuredCosts& costs);

 private:
  static constexpr int kRowClasses = 24;
  static constexpr int kPositionClasses = 24;
  static constexpr int32_t kMaxUnmeasured = 64;
  static constexpr int32_t kExactRows = 16;
  static constexpr int64_t kForgotten = 1024;
  static constexpr int32_t kSettled = 4;

  static int row_class(int32_t rows);
  static int position_class(int32_t position);
  /// First position after the class.
  static int64_t class_end(int position_class);
  /// Calls fn(class, count) for the parts of `run`, in order.
  template <typename Fn>
  static void for_each_class(const PrefillRun& run, const Fn& fn);

  double cost_us(int position_class) const;
  /// The part of a step's cost that does not depend on its prefill tokens. Weights are read once
  /// for all rows, so a step of prefill alone (0 rows) has that of one decode row if that was
  /// measured.
  double base_us(int32_t decode_rows) const;

  struct Decode {
    double us = 0;           ///< 0: not measured
    int32_t unmeasured = 0;  ///< steps with this many rows and prefill since
  };
  struct Token {
    double us = 0;         ///< 0: not measured
    int32_t measures = 0;  ///< counted up to kSettled
    bool known = false;  ///< by a step that had a quarter of its tokens here, and was not the first
  };
  struct Point {
    double rows = 0;  ///< exact, or the average of what the class was measured with
    double us = 0;
    int32_t measures = 0;
    int64_t step = 0;  ///< decode step of the last measure
  };
  static size_t point_of(int32_t rows);
  void measure_point(int32_t rows, double us);

  std::array<Decode, kRowClasses> decode_{};
  std::array<Point, kExactRows + kRowClasses> points_{};
  int64_t decode_steps_ = 0;
  bool measured_prefill_ = false;
  std::array<Token, kPositionClasses> tokens_{};
};

}  // namespace hearth::engine
