#pragma once
// Rows of x rounded to the type of f16 or bf16 weights by a launch of its own, for products of so
// many rows that rounding them again in each block would take longer.

#include <optional>

#include "kernels/cuda/matmul/half.cuh"
#include "kernels/cuda/matmul/half_operands.cuh"

namespace hearth::kernels {

/// The order of operand B in which rounded rows are stored.
enum class RowOrder {
  kLanes,  ///< of mma.sync: (row, chunk, term, lane of the row: 4, step, 2 registers)
  kTiles,  ///< of wgmma: (row / 8, chunk, term, step, 2 registers, row % 8, lane of the row: 4)
};

template <typename T>
struct RoundedRows {
  static constexpr int kUnits = 8 * kTerms<T>;  ///< of 16 bytes, of a row and chunk

  uint4* operands;  ///< RowOrder
  float* unscales;  ///< (chunks, stride)
  int32_t stride;   ///< rows, rounded up to whole tiles of 8
};

inline constexpr int kRoundThreads = 256;
inline constexpr int kRoundChunks = kRoundThreads / kWarp;  // of a block

/// A warp rounds a chunk of eight rows, four threads per row, as four lanes share a row's operand.
/// Rows past the last one repeat it.
template <typename T, RowOrder kOrder>
__global__ void __launch_bounds__(kRoundThreads)
    round_rows_kernel(PlainMatmul p, RoundedRows<T> to) {
  after_previous_launch();
  const int rows = *p.rows.count - p.rows.first_row;
  const auto chunks = static_cast<int>(half_chunks(p.cols));
  const int chunk = block_y() * kRoundChunks + thread_x() / kWarp;
  if (8 * block_x() >= rows || chunk >= chunks) return;
  const int row = 8 * block_x() + thread_x() % kWarp / 4;
  const int t = thread_x() % 4;
  float inputs[kLaneInputs];
  load_inputs(p, p.x.data + (p.first_x + (row < rows ? row : rows - 1)) * p.x.stride,
              int64_t{chunk} * kHalfChunk + t * kLaneInputs, inputs);
  const ChunkRow<T> rounded = round_inputs<T>(inputs);
  constexpr int kUnits = RoundedRows<T>::kUnits;
#pragma unroll
  for (int term = 0; term < kTerms<T>; ++term) {
    const auto& from = rounded.operand[term];
    if constexpr (kOrder == RowOrder::kLanes) {
      uint4* operand = to.operands + (int64_t{row} * chunks + chunk) * kUnits + (term * 4 + t) * 2;
      operand[0] = {from[0][0], from[0][1], from[1][0], from[1][1]};
      operand[1] = {from[2][0], from[2][1], from[3][0], from[3][1]};
    } else {
      uint4* tile = to.operands + (int64_t{block_x()} * chunks + chunk) * 8 * kUnits;
      auto* words = reinterpret_cast<uint32_t*>(tile) + thread_x() % kWarp;
#pragma unroll
      for (int s = 0; s < kHalfSteps; ++s) {
        words[((term * kHalfSteps + s) * 2 + 0) * kWarp] = from[s][0];
        words[((term * kHalfSteps + s) * 2 + 1) * kWarp] = from[s][1];
      }
    }
  }
  if (t == 0) to.unscales[int64_t{chunk} * to.stride + row] = rounded.unscale;
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
  /// Uses attention's scratch, which is free between its launches. It holds a multiple of `tile`
  /// rows, the size of the product's largest block, so each block finds all its rows there.
  RowRounding(CudaState& state, const PlainMatmul& params, int64_t rows, int64_t tile)
      : state_(state), params_(params), chunks_(half_chunks(params.cols)), rows_(rows) {
    constexpr int64_t kRowBytes = 16 * RoundedRows<T>::kUnits + sizeof(float);
    most_ = kPartialBytes / (chunks_ * kRowBytes) / tile * tile;
    HEARTH_EXPECT(most_ > 0, params.cols);
  }

  /// Calls run(params, rounded rows, count) for as many rows at a time as the scratch holds.
  /// `rounded`: the form in which the scratch holds all rows of the round, if it does.
  template <RowOrder kOrder, typename Run>
  void for_each(std::optional<RoundedForm>* rounded, const Run& run) const {
    constexpr RoundedForm kForm{std::is_same_v<T, Half> ? DType::kF16 : DType::kBF16,
                                kOrder == RowOrder::kTiles};
    for (int64_t first = 0; first < rows_; first += most_) {
      const int64_t count = rows_ - first < most_ ? rows_ - first : most_;
      const int64_t tiles = ceil_div(count, 8);
      RoundedRows<T> x{};
      x.operands = static_cast<uint4*>(state_.partial.get());
      x.stride = static_cast<int32_t>(tiles * 8);
      x.unscales =
          reinterpret_cast<float*>(x.operands + x.stride * chunks_ * RoundedRows<T>::kUnits);
      PlainMatmul p = params_;
      p.rows.first_row += static_cast<int32_t>(first);
      p.first_x += first;
      if (*rounded != kForm) {
        HEARTH_LAUNCH(state_.stream.get(), (round_rows_kernel<T, kOrder>),
                      grid2(tiles, ceil_div(chunks_, kRoundChunks)), kRoundThreads, 0, p, x);
      }
      run(p, x, count);
    }
    *rounded = rows_ <= most_ ? std::optional(kForm) : std::nullopt;
  }

 private:
  CudaState& state_;
  const PlainMatmul& params_;
  int64_t chunks_;
  int64_t rows_;
  int64_t most_;
};

}  // namespace hearth::kernels
