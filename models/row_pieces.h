#pragma once
// A step cut into pieces of consecutive rows, so that the stages of a model compute different
// pieces at the same time. Batch invariance makes the cut free: no value depends on it. Host
// memory.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops.h"
#include "models/model.h"

namespace hearth::models {

/// Rows of a piece, at most, unless rows that belong together are more: products with fewer rows
/// cost more per row, and with more rows stages wait longer for each other.
inline constexpr int32_t kPieceRows = 64;

struct RowPiece {
  int32_t first = 0;  ///< row of the step
  int32_t end = 0;
};

/// Pieces of a step, in order, of about equal size. In one piece stay all rows that are stored in
/// several places (StepArgs::also_stored), and the rows of a sequence whose state sees drafts: at
/// most as many as outputs. Fills `pieces`.
void cut_rows(const StepArgs& args, std::vector<RowPiece>* pieces);

/// Rows that a piece of a step within these bounds has at most.
int32_t most_piece_rows(int32_t max_tokens, int32_t max_outputs);

/// The index of one piece, copied: the step's own may change meanwhile.
class PieceIndex {
 public:
  /// `args` of the whole step. Output rows ascend.
  void fill(const StepArgs& args, const RowPiece& piece);
  const kernels::BatchIndex& batch() const { return batch_; }
  /// Of the step, that of this piece's first output.
  int32_t first_output() const { return first_output_; }

 private:
  /// Two more for each group.
  enum Array : size_t {
    kCounts,
    kTokenIds,
    kPositions,
    kSeqIdx,
    kQueryStart,
    kContextLen,
    kOutputRows,
    kFirstOfGroups,
  };
  void fill_sequences(const kernels::BatchIndex& step, const RowPiece& piece);
  void fill_states(const kernels::BatchIndex& step, const RowPiece& piece);
  void fill_group(const StepArgs& args, const RowPiece& piece, size_t group);
  std::vector<int32_t>& array(size_t number);

  kernels::BatchIndex batch_;
  int32_t first_seq_ = 0;
  int32_t first_output_ = 0;
  std::vector<std::vector<int32_t>> arrays_;  ///< that batch_ points to; reused
  std::vector<kernels::StateStep> states_;
  std::vector<kernels::GroupIndex> groups_;
};

}  // namespace hearth::models
