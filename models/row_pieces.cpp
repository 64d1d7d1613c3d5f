#include "models/row_pieces.h"

#include <algorithm>

#include "kernels/base/check.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"

namespace hearth::models {

using kernels::BatchIndex;
using kernels::GroupIndex;
using kernels::StateStep;

namespace {

/// Where the piece that begins in row `begin` may end, at `end` or near it.
int32_t piece_end(const BatchIndex& step, int32_t begin, int32_t end, int32_t together) {
  if (begin == 0) end = std::max(end, together);
  if (step.states == nullptr || end == step.num_tokens) return end;
  const int32_t seq = step.seq_idx[end - 1];
  const int32_t seq_begin = step.query_start[seq], seq_end = step.query_start[seq + 1];
  if (end == seq_end || step.states[seq].advance == seq_end - seq_begin) return end;
  return seq_begin > begin && seq_begin >= together ? seq_begin : seq_end;
}

}  // namespace

void cut_rows(const StepArgs& args, std::vector<RowPiece>* pieces) {
  const BatchIndex& step = *args.batch;
  int32_t together = 0;
  for (const BatchIndex& stored : args.also_stored) {
    together = std::max(together, stored.num_tokens);
  }
  const int32_t count = (step.num_tokens + kPieceRows - 1) / kPieceRows;
  const int32_t rows = count == 0 ? 0 : (step.num_tokens + count - 1) / count;
  pieces->clear();
  for (int32_t begin = 0; begin < step.num_tokens; begin = pieces->back().end) {
    const int32_t end = std::min(step.num_tokens, begin + rows);
    pieces->push_back({begin, piece_end(step, begin, end, together)});
  }
}

int32_t most_piece_rows(int32_t max_tokens, int32_t max_outputs) {
  return std::min(max_tokens, std::max(max_outputs, kPieceRows));
}

std::vector<int32_t>& PieceIndex::array(size_t number) {
  if (arrays_.size() <= number) arrays_.resize(number + 1);
  return arrays_[number];
}

void PieceIndex::fill(const StepArgs& args, const RowPiece& piece) {
  const BatchIndex& step = *args.batch;
  array(kFirstOfGroups + 2 * step.groups.size());  // the arrays stay where they are from here on
  const auto copy = [&](Array number, const int32_t* from) {
    array(number).assign(from + piece.first, from + piece.end);
    return array(number).data();
  };
  batch_ = {};
  batch_.num_tokens = piece.end - piece.first;
  batch_.token_ids = copy(kTokenIds, step.token_ids);
  batch_.positions = copy(kPositions, step.positions);
  fill_sequences(step, piece);
  const std::span all_outputs(step.output_rows, step.num_outputs);
  HEARTH_CHECK(std::ranges::is_sorted(all_outputs), "output rows do not ascend");
  const auto first = std::ranges::lower_bound(all_outputs, piece.first);
  const auto end = std::ranges::lower_bound(all_outputs, piece.end);
  first_output_ = narrow<int32_t>(first - all_outputs.begin());
  std::vector<int32_t>& outputs = array(kOutputRows);
  outputs.assign(first, end);
  for (int32_t& row : outputs) row -= piece.first;
  batch_.output_rows = outputs.data();
  batch_.num_outputs = size32(outputs);
  if (step.states != nullptr) fill_states(step, piece);
  groups_.assign(step.groups.size(), {});
  for (size_t group = 0; group < groups_.size(); ++group) {
    if (step.groups[group].max_blocks > 0) fill_group(args, piece, group);
  }
  batch_.groups = groups_;
  array(kCounts) = {batch_.num_tokens, batch_.num_seqs, batch_.num_outputs};
  batch_.counts = array(kCounts).data();
}

void PieceIndex::fill_sequences(const BatchIndex& step, const RowPiece& piece) {
  first_seq_ = step.seq_idx[piece.first];
  batch_.num_seqs = step.seq_idx[piece.end - 1] + 1 - first_seq_;
  std::vector<int32_t>& seq_idx = array(kSeqIdx);
  seq_idx.assign(step.seq_idx + piece.first, step.seq_idx + piece.end);
  for (int32_t& seq : seq_idx) seq -= first_seq_;
  std::vector<int32_t>& starts = array(kQueryStart);
  std::vector<int32_t>& contexts = array(kContextLen);
  starts.assign(1, 0);
  contexts.clear();
  for (int32_t seq = first_seq_; seq < first_seq_ + batch_.num_seqs; ++seq) {
    const int32_t end = step.query_start[seq + 1];
    starts.push_back(std::min(end, piece.end) - piece.first);
    contexts.push_back(step.context_len[seq] - std::max(0, end - piece.end));
  }
  batch_.seq_idx = seq_idx.data();
  batch_.query_start = starts.data();
  batch_.context_len = contexts.data();
}

// A sequence that continues from the piece before continues from the state that it left.
void PieceIndex::fill_states(const BatchIndex& step, const RowPiece& piece) {
  states_.clear();
  for (int32_t seq = first_seq_; seq < first_seq_ + batch_.num_seqs; ++seq) {
    const int32_t begin = step.query_start[seq], end = step.query_start[seq + 1];
    StateStep state = step.states[seq];
    const int32_t rows = std::min(end, piece.end) - std::max(begin, piece.first);
    if (rows < end - begin) state.advance = rows;
    int32_t done = 0;  // rows before this piece, replayed ones included
    if (begin < piece.first) {
      done = state.replay + piece.first - begin;
      state.from = state.to;
      state.replay = 0;
    }
    state.saved_after -= done;
    if (state.saved_after <= 0 || state.saved_after > state.replay + state.advance) {
      state.saved = -1;
      state.saved_after = 0;
    }
    states_.push_back(state);
  }
  batch_.states = states_.data();
}

void PieceIndex::fill_group(const StepArgs& args, const RowPiece& piece, size_t group) {
  const GroupIndex& from = args.batch->groups[group];
  std::vector<int32_t>& slots = array(kFirstOfGroups + 2 * group);
  slots.assign(from.slot_mapping + piece.first, from.slot_mapping + piece.end);
  const int32_t block_size = args.pools[group].block_size;
  const int32_t longest = std::ranges::max(array(kContextLen));
  const int32_t blocks = std::min(from.max_blocks, (longest + block_size - 1) / block_size);
  std::vector<int32_t>& table = array(kFirstOfGroups + 2 * group + 1);
  table.clear();
  for (int32_t seq = first_seq_; seq < first_seq_ + batch_.num_seqs; ++seq) {
    const int32_t* row = from.block_table + int64_t{seq} * from.max_blocks;
    table.insert(table.end(), row, row + blocks);
  }
  groups_[group] = {table.data(), blocks, slots.data()};
}

}  // namespace hearth::models
