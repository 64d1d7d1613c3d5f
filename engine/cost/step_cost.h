#pragma once
// What a step costs, learned from measured steps. Pure logic.
//
//   T = base(decode rows) + sum over prefill tokens of token_us(position)
//
// Decode costs are kept per power of two of the row count, since weights are read once for all rows
// but attention is not. Prices of prefill tokens are kept per class of position, which doubles from
// class to class: attention makes the tokens late in a long prompt dearer, and the next prompt
// shall not begin at that price, nor this one go on at the price of its beginning. (One price and a
// slope, fitted by least squares, were tried: late in a prompt the fit calls the tokens themselves
// free.) Measures enter as moving averages, each bounded to half .. double of what is known: a page
// fault or a suspended machine does not make the next step ten times too long. Only the
// first few of a price are believed as they are, within 1/8 .. 8 times: what they replace is a
// guess.
//
// What a step of so many decode rows costs is also kept as points (rows, us), one per row count up
// to kExactRows, between which rows_us interpolates: that is what speculation asks, where a batch
// of three sequences may become one of seven rows. A point that was not measured for kForgotten
// decode steps is no longer believed where younger ones are, so that a row count that once looked
// dear is tried again.

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

/// What is kept of measured costs for a later engine of the same model on the same machine.
struct MeasuredCosts {
  std::vector<double> token_us;  ///< of a prefill token, per class of position; 0: not measured
};

class StepCost {
 public:
  /// Of a step with `rows` decode rows and nothing else; before it was measured, a prior of 20 ms.
  double decode_us(int32_t rows) const;
  /// The same, from the points around it; never less than for fewer rows that are known.
  double rows_us(int32_t rows) const;
  bool measured_any() const { return decode_steps_ > 0; }
  bool measured_prefill() const { return measured_prefill_; }
  /// Decode steps since one of exactly so many rows (up to kExactRows) was measured; none was: very
  /// many.
  int64_t steps_since(int32_t rows) const;
  /// A step with that many decode rows shall be a plain one, to learn what it costs: it never was,
  /// or not within the last kMaxUnmeasured steps.
  bool wants_plain_step(int32_t rows) const;

  /// What prefill may take, in us, of a step with `decode_rows` rows that shall last `stretch`
  /// plain ones. A step without decode rows shall last `step_us`, or `stretch` plain ones of one
  /// row where that is longer: where reading the weights takes most of `step_us`, hardly a token
  /// would fit.
  double prefill_room_us(int32_t decode_rows, double stretch, int64_t step_us) const;
  /// Prefill tokens from position `first` on that fit into `room_us`.
  int32_t tokens_within(double room_us, int32_t first) const;
  /// What the tokens of `run` add to a step, in us.
  double prefill_us(const PrefillRun& run) const;
  /// Whether steps were measured at all positions of `run`, here or by who made restored prices:
  /// otherwise prefill_us is a guess, good for planning and not for being shown.
  bool knows(const PrefillRun& run) const;
  /// Of one prefill token at `position`, in us.
  double token_us(int32_t position) const;

  /// A step with these rows took `step_us`.
  void measured(int32_t decode_rows, std::span<const PrefillRun> prefill, int64_t step_us);

  MeasuredCosts measured_costs() const;
  /// Before anything was measured. Values that no step could have had are left out.
  void restore(const MeasuredCosts& prices);

 private:
  static constexpr int kRowClasses = 24;
  static constexpr int kPositionClasses = 24;
  static constexpr int32_t kMaxUnmeasured = 64;
  static constexpr int32_t kExactRows = 16;
  static constexpr int64_t kForgotten = 1024;
  static constexpr int32_t kSettled = 4;

  static int row_class(int32_t rows);
  static int position_class(int32_t position);
  /// First position behind the class.
  static int64_t class_end(int position_class);
  /// Calls fn(class, count) for the parts of `run`, in order.
  template <typename Fn>
  static void for_each_class(const PrefillRun& run, const Fn& fn);

  double price(int position_class) const;
  /// The share of a step that its prefill tokens do not cost: weights are read once for all rows,
  /// so a step of prefill alone (0 rows) has that of one decode row, where it was measured.
  double base_us(int32_t decode_rows) const;

  struct Decode {
    double us = 0;           ///< 0: not measured
    int32_t unmeasured = 0;  ///< steps with so many rows, and prefill beside them, since
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
