#pragma once
// An op with a state, run on the rows of two sequences in steps.

#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kernels/ops/recurrent_ops.h"
#include "tests/op/op_testing.h"

namespace hearth::kernels::testing {

inline constexpr int32_t kBlocks = 6;
inline constexpr int64_t kOffset = 64;  // of the op's part of a block

/// A step's rows: of the text's rows [first, first + count), the last `drafts` of which are drafts.
struct Part {
  int32_t seq = 0;
  int32_t first = 0;
  int32_t count = 0;
  StateStep state = {};
};

/// One op on some rows of a text: what it reads and writes besides the states.
struct Problem {
  std::string name;
  int64_t in_width = 0;
  int64_t out_width = 0;
  int64_t kept_width = 0;
  int64_t state_values = 0;
  std::function<void(const OpTable&, const BatchIndex&, const StatePart&, const TensorView& in,
                     const TensorView& kept, const TensorView& out)>
      run;
  std::vector<Tensor> weights;  ///< packed by `run`
};

/// The rows of two sequences, computed in steps: all outputs by sequence and position, the states
/// in the end, and the kept rows.
class Steps {
 public:
  Steps(const Problem& problem, const OpTable& table, const std::vector<Matrix>& texts)
      : problem_(problem),
        table_(table),
        texts_(texts),
        block_bytes_(kOffset + 4 * problem.state_values + 64),
        memory_(kBlocks * block_bytes_, std::byte{0x7f}),  // NaN-like: a state never written
        kept_(2 * kKeptRows, problem.kept_width) {
    for (const Matrix& text : texts) outs.emplace_back(text.rows(), problem.out_width);
  }

  void step(const std::vector<Part>& parts) {
    std::vector<StateStep> states;
    std::vector<int32_t> query_start = {0}, seq_idx;
    int32_t rows = 0;
    for (const Part& part : parts) {
      states.push_back(part.state);
      rows += part.count;
      seq_idx.resize(rows, static_cast<int32_t>(states.size()) - 1);
      query_start.push_back(rows);
    }
    Matrix in(rows, problem_.in_width, 1, 3);
    Matrix out(rows, problem_.out_width, 2, 1);
    int32_t row = 0;
    for (const Part& part : parts) {
      for (int32_t i = 0; i < part.count; ++i, ++row) {
        for (int64_t c = 0; c < problem_.in_width; ++c) {
          in.at(row, c) = texts_[part.seq].at(part.first + i, c);
        }
      }
    }
    BatchIndex batch;
    batch.num_tokens = rows;
    batch.num_seqs = static_cast<int32_t>(parts.size());
    const int32_t counts[] = {rows, batch.num_seqs, 0};
    batch.counts = counts;
    batch.seq_idx = seq_idx.data();
    batch.query_start = query_start.data();
    batch.states = states.data();
    problem_.run(table_, batch, {memory_.data(), block_bytes_, kOffset}, in.view(), kept_.view(),
                 out.view());
    table_.synchronize(table_.state.get());
    CHECK(out.guards_intact());
    row = 0;
    for (const Part& part : parts) {
      for (int32_t i = 0; i < part.count; ++i, ++row) {
        for (int64_t c = 0; c < problem_.out_width; ++c) {
          outs[part.seq].at(part.first + i, c) = out.at(row, c);
        }
      }
    }
  }

  std::vector<float> state(int32_t block) const {
    std::vector<float> out(problem_.state_values);
    std::memcpy(out.data(), memory_.data() + block * block_bytes_ + kOffset, 4 * out.size());
    return out;
  }

  std::vector<Matrix> outs;

 private:
  const Problem& problem_;
  const OpTable& table_;
  const std::vector<Matrix>& texts_;
  const int64_t block_bytes_;
  std::vector<std::byte> memory_;
  Matrix kept_;
};

inline Tensor vector_of(uint64_t seed, int64_t size, float low, float high) {
  Random random(seed);
  Matrix values(1, size);
  values.fill(random, low, high);
  Tensor tensor{"w", DType::kF32, 1, size, std::vector<std::byte>(4 * size)};
  for (int64_t i = 0; i < size; ++i) {
    std::memcpy(tensor.bytes.data() + 4 * i, &values.at(0, i), 4);
  }
  return tensor;
}

inline std::vector<Matrix> texts_of(const Problem& problem, int32_t rows) {
  Random random(seed_or(61));
  std::vector<Matrix> texts;
  for (int i = 0; i < 2; ++i) {
    texts.emplace_back(rows, problem.in_width);
    texts.back().fill(random, -1, 1);
  }
  return texts;
}

inline StateStep stays(int32_t block, int32_t first, int32_t count) {
  return {.from = first == 0 ? -1 : block, .to = block, .advance = count};
}

/// Both sequences in one step each, in blocks 0 and 1.
inline void in_one_go(Steps& steps, int32_t rows) {
  steps.step({{0, 0, rows, stays(0, 0, rows)}});
  steps.step({{1, 0, rows, stays(1, 0, rows)}});
}

/// The ops of RWKV-7 (wkv_ops_test.cpp).
std::vector<Problem> wkv_problems();

}  // namespace hearth::kernels::testing
