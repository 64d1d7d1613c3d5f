#include "models/row_pieces.h"

#include <doctest/doctest.h>

#include <vector>

namespace hearth::models {
namespace {

using kernels::GroupIndex;
using kernels::StateStep;

/// A step of sequences with so many rows each; the last row of each is an output.
struct Step {
  explicit Step(const std::vector<int32_t>& rows_of, bool has_states = false) {
    query_start.push_back(0);
    for (size_t seq = 0; seq < rows_of.size(); ++seq) {
      const auto number = static_cast<int32_t>(seq);
      for (int32_t i = 0; i < rows_of[seq]; ++i) {
        const auto row = static_cast<int32_t>(token_ids.size());
        token_ids.push_back(100 * number + i);
        positions.push_back(10 + i);
        seq_idx.push_back(number);
        slots.push_back(1000 + row);
      }
      query_start.push_back(static_cast<int32_t>(token_ids.size()));
      context_len.push_back(10 + rows_of[seq]);
      output_rows.push_back(static_cast<int32_t>(token_ids.size()) - 1);
      for (int32_t block = 0; block < kMaxBlocks; ++block) table.push_back(50 * number + block);
      StateStep state;
      state.from = number;
      state.to = number + 20;
      state.advance = rows_of[seq];
      states.push_back(state);
    }
    groups = {{table.data(), kMaxBlocks, slots.data()}};
    batch.num_tokens = static_cast<int32_t>(token_ids.size());
    batch.num_seqs = static_cast<int32_t>(rows_of.size());
    batch.num_outputs = static_cast<int32_t>(output_rows.size());
    batch.token_ids = token_ids.data();
    batch.positions = positions.data();
    batch.seq_idx = seq_idx.data();
    batch.query_start = query_start.data();
    batch.context_len = context_len.data();
    batch.output_rows = output_rows.data();
    batch.groups = groups;
    if (has_states) batch.states = states.data();
  }

  StepArgs args() const { return {.batch = &batch, .pools = pools, .logits = {}}; }
  std::vector<RowPiece> cut() const {
    std::vector<RowPiece> pieces;
    cut_rows(args(), &pieces);
    return pieces;
  }

  static constexpr int32_t kMaxBlocks = 9;
  std::vector<int32_t> token_ids, positions, seq_idx, slots, query_start, context_len, output_rows,
      table;
  std::vector<StateStep> states;
  std::vector<GroupIndex> groups;
  kernels::BatchIndex batch;
  std::vector<KvPool> pools = {KvPool{}};
};

template <typename T>
std::vector<T> copied(const T* from, int32_t count) {
  return {from, from + count};
}

TEST_CASE("pieces are about equally long, at most kPieceRows, and cover the step") {
  for (const int32_t rows : {1, kPieceRows - 1, kPieceRows, kPieceRows + 1, 2 * kPieceRows, 512}) {
    CAPTURE(rows);
    const std::vector<RowPiece> pieces = Step({rows}).cut();
    CHECK(pieces.size() == static_cast<size_t>((rows + kPieceRows - 1) / kPieceRows));
    int32_t next = 0;
    for (const RowPiece& piece : pieces) {
      CHECK(piece.first == next);
      CHECK(piece.end - piece.first <= kPieceRows);
      next = piece.end;
    }
    CHECK(next == rows);
  }
  CHECK(Step({}).cut().empty());
}

TEST_CASE("the index of a piece is that of a step of its rows") {
  const Step step({3, 40, 2});
  const std::vector<RowPiece> pieces = {{0, 23}, {23, 45}};
  PieceIndex index;
  index.fill(step.args(), pieces[1]);
  const kernels::BatchIndex& batch = index.batch();
  const int32_t first = pieces[1].first;
  CHECK(batch.num_tokens == 45 - first);
  CHECK(batch.num_seqs == 2);
  CHECK(batch.num_outputs == 2);
  CHECK(index.first_output() == 1);
  CHECK(copied(batch.counts, 3) == std::vector<int32_t>{45 - first, 2, 2});
  CHECK(batch.token_ids[0] == 100 + first - 3);
  CHECK(copied(batch.query_start, 3) == std::vector<int32_t>{0, 43 - first, 45 - first});
  CHECK(copied(batch.context_len, 2) == std::vector<int32_t>{50, 12});
  CHECK(copied(batch.output_rows, 2) == std::vector<int32_t>{42 - first, 44 - first});
  CHECK(batch.seq_idx[0] == 0);
  CHECK(batch.seq_idx[44 - first] == 1);
  CHECK(batch.groups[0].slot_mapping[0] == 1000 + first);
  // Blocks as far as the longest context reaches: 50 tokens are four.
  REQUIRE(batch.groups[0].max_blocks == 4);
  CHECK(copied(batch.groups[0].block_table, 8) ==
        std::vector<int32_t>{50, 51, 52, 53, 100, 101, 102, 103});

  index.fill(step.args(), pieces[0]);
  CHECK(index.batch().num_seqs == 2);
  CHECK(index.batch().num_outputs == 1);
  // The second sequence reaches as far as its rows here.
  CHECK(index.batch().context_len[1] == 10 + first - 3);
}

TEST_CASE("a state goes from piece to piece, and each snapshot is taken once") {
  Step step({70}, true);
  step.states[0].replay = 2;
  step.states[0].advance = 70;
  step.states[0].saved = 7;
  step.states[0].saved_after = 2 + 50;
  const std::vector<RowPiece> pieces = {{0, 24}, {24, 50}, {50, 70}};
  PieceIndex index;
  int32_t advanced = 0;
  for (const RowPiece& piece : pieces) {
    index.fill(step.args(), piece);
    const StateStep& state = index.batch().states[0];
    const bool first = piece.first == 0;
    CHECK(state.from == (first ? 0 : 20));
    CHECK(state.to == 20);
    CHECK(state.replay == (first ? 2 : 0));
    CHECK(state.advance == piece.end - piece.first);
    const bool saves = piece.first < 50 && 50 <= piece.end;
    CHECK(state.saved == (saves ? 7 : -1));
    if (saves) CHECK(state.saved_after == 50 - piece.first);
    advanced += state.advance;
  }
  CHECK(advanced == 70);
}

TEST_CASE("rows that belong together stay in one piece") {
  SUBCASE("of a sequence whose state sees drafts") {
    Step step({kPieceRows - 4, 8, kPieceRows - 4}, true);
    step.states[1].advance = 1;
    const std::vector<RowPiece> pieces = step.cut();
    REQUIRE(pieces.size() > 1);
    for (const RowPiece& piece : pieces) {
      CHECK((piece.end <= kPieceRows - 4 || piece.end >= kPieceRows + 4));
    }
  }
  SUBCASE("stored in several places") {
    const Step step({2 * kPieceRows, 2 * kPieceRows});
    StepArgs args = step.args();
    kernels::BatchIndex stored;
    stored.num_tokens = kPieceRows + 20;
    const std::vector<kernels::BatchIndex> also = {stored};
    args.also_stored = also;
    std::vector<RowPiece> pieces;
    cut_rows(args, &pieces);
    CHECK(pieces.front().end >= kPieceRows + 20);
    CHECK(pieces.back().end == 4 * kPieceRows);
  }
}

}  // namespace
}  // namespace hearth::models
