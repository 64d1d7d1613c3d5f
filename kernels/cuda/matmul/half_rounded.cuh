#pragma once
// Rows of x rounded to the type of f16 or bf16 weights by a launch of its own, for products of so
// many rows that rounding them again in each block would take longer.

#include <optional>

#include "kernels/cuda/matmul/half_operands.cuh"

namespace hearth::kernels {

template <typename T>
struct RoundedRows {
  /// A row's share of a chunk: [term][lane of the row: 4][step][2], the order of operand B.
  static constexpr int kUnits = 8 * kTerms<T>;  ///< of 16 bytes

  uint4* operands;  ///< (rows, chunks, kUnits)
  float* unscales;  ///< (chunks, stride); rows from `rows` on hold anything
  int32_t stride;   ///< rows, rounded up to whole tiles
};

inline constexpr int kRoundThreads = 256;

/// Four threads per chunk of a row, as four lanes share a row's operand.
template <typename T>
__global__ void __launch_bounds__(kRoundThreads)
    round_rows_kernel(PlainMatmul p, RoundedRows<T> to) {
  after_previous_launch();
  if (p.rows.first_row + block_x() >= *p.rows.count) return;
  const auto chunks = static_cast<int>(half_chunks(p.cols));
  const int chunk = (block_y() * kRoundThreads + thread_x()) / 4;
  const int t = thread_x() % 4;
  float inputs[kLaneInputs];
  load_inputs(p, p.x.data + (p.first_x + block_x()) * p.x.stride,
              int64_t{chunk} * kHalfChunk + t * kLaneInputs, inputs);
  const ChunkRow<T> row = round_inputs<T>(inputs);
  if (chunk >= chunks) return;
  uint4* operands = to.operands + (int64_t{block_x()} * chunks + chunk) * RoundedRows<T>::kUnits;
#pragma unroll
  for (int term = 0; term < kTerms<T>; ++term) {
    const auto& from = row.operand[term];
    uint4* operand = operands + (term * 4 + t) * 2;
    operand[0] = {from[0][0], from[0][1], from[1][0], from[1][1]};
    operand[1] = {from[2][0], from[2][1], from[3][0], from[3][1]};
  }
  if (t == 0) to.unscales[int64_t{chunk} * to.stride + block_x()] = row.unscale;
}

/// A lane's operand B of one row and chunk, from its 2 kTerms units.
template <typename T, typename Units>
__device__ void load_operand(const Units* units, uint32_t (&to)[kTerms<T>][kHalfSteps][2]) {
#pragma unroll
  for (int term = 0; term < kTerms<T>; ++term) {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const uint4 from = units[term * 8 + pair];
      to[term][2 * pair][0] = from.x;
      to[term][2 * pair][1] = from.y;
      to[term][2 * pair + 1][0] = from.z;
      to[term][2 * pair + 1][1] = from.w;
    }
  }
}

/// The rows of a round, rounded to T as far as the scratch holds them.
template <typename T>
class RowRounding {
 public:
  /// Attention's scratch is free between its launches.
  RowRounding(CudaState& state, const PlainMatmul& params, int64_t rows)
      : state_(state), params_(params), chunks_(half_chunks(params.cols)), rows_(rows) {
    constexpr int64_t kRowBytes = 16 * RoundedRows<T>::kUnits + sizeof(float);
    const int64_t padding = 7 * chunks_ * static_cast<int64_t>(sizeof(float));
    most_ = (kPartialBytes - padding) / (chunks_ * kRowBytes);
    HEARTH_EXPECT(most_ > 0, params.cols);
  }

  /// Calls run(params, rounded rows, count) for as many rows at a time as the scratch holds.
  /// `rounded`: the type in which the scratch holds all rows of the round, if it does.
  template <typename Run>
  void for_each(std::optional<DType>* rounded, const Run& run) const {
    constexpr DType kType = std::is_same_v<T, Half> ? DType::kF16 : DType::kBF16;
    for (int64_t first = 0; first < rows_; first += most_) {
      const int64_t count = rows_ - first < most_ ? rows_ - first : most_;
      RoundedRows<T> x{};
      x.operands = static_cast<uint4*>(state_.partial.get());
      x.unscales = reinterpret_cast<float*>(x.operands + count * chunks_ * RoundedRows<T>::kUnits);
      x.stride = static_cast<int32_t>(ceil_div(count, 8) * 8);
      PlainMatmul p = params_;
      p.rows.first_row += static_cast<int32_t>(first);
      p.first_x += first;
      if (*rounded != kType) {
        const dim3 grid = grid2(count, ceil_div(4 * chunks_, kRoundThreads));
        HEARTH_LAUNCH(state_.stream.get(), round_rows_kernel<T>, grid, kRoundThreads, 0, p, x);
      }
      run(p, x, count);
    }
    *rounded = rows_ <= most_ ? std::optional(kType) : std::nullopt;
  }

 private:
  CudaState& state_;
  const PlainMatmul& params_;
  int64_t chunks_;
  int64_t rows_;
  int64_t most_;
};

}  // namespace hearth::kernels
