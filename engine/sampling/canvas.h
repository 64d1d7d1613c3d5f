#pragma once
// The canvas of one sample: which places are masked, in which pass how many of them are filled, and
// which. Pure logic on tokens and confidences. Owned by its sequence, on the engine thread.
//
// The canvas is divided into blocks, which are filled one after another. A block of n places takes
// s = ceil(steps / blocks) passes. Each pass draws a token for every place that may be filled, and
// fills those that the rule chooses:
//
//   even:     n / s places in each pass, and one more in the first n mod s passes
//   by time:  of m places still masked, m * (1 - t(i + 1) / t(i)), rounded down; all in the last;
//             t(i) = 1 - i / s * (1 - 0.001)
//
// In Remasking::kOrigin each masked place is filled with the chance that these shares stand for.
// Passes that fill nothing are left out: they would change nothing. With one block that is the
// whole canvas, or where the number of blocks divides `steps`, the numbers are those of the
// published code.
//
// Noise is addressed: a pass draws with the seed noise_bits(seed, sample, pass, mask token), passes
// being counted over all blocks. So the same seed gives the same text, whatever else runs, after a
// preemption, and after a restart.
//
// Source: see models/canvas.h.

#include <cstdint>
#include <span>
#include <vector>

#include "models/canvas.h"

namespace hearth::engine {

/// A token drawn for one place.
struct CanvasDraw {
  int32_t token = 0;
  double rank = 0;  ///< the rule fills the places with the largest; of equals, the first
  double confidence = 0;
};

class Canvas {
 public:
  struct Place {
    int32_t prompt = 0;  ///< tokens before the canvas
    int32_t length = 0;  ///< tokens of the canvas
    int32_t known = 0;   ///< of them, those that an earlier run has sent; whole blocks are kept
    int32_t sample = 0;
    uint64_t seed = 0;
  };
  Canvas(const models::CanvasModel& model, const models::CanvasParams& params, const Place& place);

  /// Positions in the sequence that the coming pass draws tokens for, ascending; none: it is full.
  std::span<const int32_t> places() const { return places_; }
  /// Positions of the rows that have their logits, ascending.
  std::span<const int32_t> rows() const { return rows_; }
  /// The seed of the coming pass's draws.
  uint64_t pass_seed() const;
  /// Whether ranks decide which places are filled.
  bool ranks() const;

  /// One draw for each of places(): fills those that the rule chooses in `tokens`, the sequence's,
  /// and moves on to the next pass.
  void take(std::span<const CanvasDraw> draws, std::span<int32_t> tokens);

  /// The text ends before this token of the canvas; to be called when it is whole.
  void cut(int32_t index) { num_whole_ = index; }
  /// Tokens of the canvas in whole blocks from its beginning, up to its end.
  int32_t num_whole() const { return num_whole_; }
  /// Passes before the coming one, those left out among them.
  int32_t pass() const { return pass_; }
  int32_t num_passes() const { return num_blocks() * steps_; }
  /// Per token of the canvas, when it was filled; 0: masked, or filled by an earlier run.
  const std::vector<double>& confidence() const { return confidence_; }
  const models::CanvasModel& model() const { return model_; }

 private:
  int32_t num_blocks() const;
  int32_t block_begin() const { return block_ * params_.block_length; }
  int32_t block_end() const;
  void begin_block();
  void next_pass();
  double share() const;
  int32_t count() const;
  void choose_at_random();
  double chance(int32_t position) const;
  uint64_t noise(uint64_t seed, int32_t position) const;

  models::CanvasModel model_;
  models::CanvasParams params_;
  Place place_;
  int32_t steps_;           ///< passes of a block
  int32_t block_ = 0;       ///< the one being filled
  int32_t step_ = 0;        ///< of that block
  int32_t pass_ = 0;        ///< over all blocks
  int32_t block_size_ = 0;  ///< places of that block that were masked when it began
  int32_t num_whole_ = 0;
  std::vector<int32_t> masked_;  ///< positions, of that block
  std::vector<int32_t> places_, rows_;
  std::vector<double> confidence_;
};

}  // namespace hearth::engine
