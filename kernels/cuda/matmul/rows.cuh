#pragma once
// The rows that a block of a matrix product computes and the matrix they use: a slice of the step's
// rows, or of the rows that chose one expert. Also the parts that the inputs are divided into.

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/matmul/quant_layout.cuh"

namespace hearth::kernels {

/// Parts that the inputs of every product are divided into: one warp each if there are few rows,
/// one after the other if there are many. Each part is its own chain; parts are added in ascending
/// order. Part of the numerics.
inline constexpr int kParts = 8;
static_assert(kParts * kWarp == 256);
/// Chunks of inputs in a part; the last parts may have fewer, or none.
__host__ __device__ constexpr int chunks_per_part(int chunks) {
  return (chunks + kParts - 1) / kParts;
}
/// The part's first chunk, and its end if `part` is the next one.
__device__ inline int part_begin(int chunks, int part) {
  const int begin = part * chunks_per_part(chunks);
  return begin < chunks ? begin : chunks;
}

struct MatmulRows {
  const int32_t* count;  ///< of the step
  int32_t first_row;     ///< first row of this round
  // For a mixture of experts; slices are null otherwise.
  const ExpertSlice* slices;
  const int32_t* choices;  ///< token * top_k + choice
  int32_t top_k;
  bool x_per_choice;
};

/// Up to kWidth rows of x, counted within the round, and of `out`, counted within the step.
struct RowSlice {
  int32_t expert;
  int32_t num_rows;  ///< 0: nothing to do
  int32_t first;
  MatmulRows rows;

  __device__ int32_t in(int32_t n) const {
    if (rows.slices == nullptr) return first + n;
    const int32_t choice = rows.choices[first + n];
    return rows.x_per_choice ? choice - rows.first_row * rows.top_k
                             : choice / rows.top_k - rows.first_row;
  }
  __device__ int64_t out(int32_t n) const {
    return rows.slices == nullptr ? rows.first_row + first + n : rows.choices[first + n];
  }
};

__device__ inline RowSlice slice_of(const MatmulRows& rows, int32_t index, int32_t width) {
  if (rows.slices != nullptr) {
    const ExpertSlice slice = rows.slices[index];
    return {slice.expert, slice.num_rows, slice.first, rows};
  }
  const int32_t first = index * width;
  const int32_t left = *rows.count - rows.first_row - first;
  return {0, left < 0 ? 0 : left < width ? left : width, first, rows};
}

/// Stores one output of a row, with its residual if there is one.
template <typename Params>
__device__ void store_output(const Params& p, int64_t row, int64_t output, float sum) {
  if (p.residual.data != nullptr) sum += p.residual.data[row * p.residual.stride + output];
  p.out.data[row * p.out.stride + output] = sum;
}

/// For kernels in which each warp computes one part of 16 outputs (of group blockIdx.y) and 8 *
/// kTiles rows, laid out as by the tensor cores: adds the parts in ascending order and stores the
/// sums.
template <int kTiles, typename Params>
__device__ void store_parts(const Params& p, const RowSlice& slice, const float (&acc)[kTiles][4]) {
  constexpr int kRows = 8 * kTiles;
  __shared__ float parts[kParts][kRows][kGroupOutputs + 1];
  const auto lane = thread_x() % kWarp;
  const auto part = thread_x() / kWarp;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      parts[part][8 * tile + 2 * (lane % 4) + i % 2][lane / 4 + i / 2 * 8] = acc[tile][i];
    }
  }
  __syncthreads();
  for (int i = thread_x(); i < kRows * kGroupOutputs; i += kParts * kWarp) {
    const int n = i / kGroupOutputs;
    const int64_t output = int64_t{blockIdx.y} * kGroupOutputs + i % kGroupOutputs;
    if (n >= slice.num_rows || output >= p.outputs) continue;
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kParts; ++k) sum += parts[k][n][i % kGroupOutputs];
    store_output(p, slice.out(n), output, sum);
  }
}

/// What the last blocks of a product of few rows compute from its outputs, gates and then as many
/// others (kernels/cuda/matmul/gate_tail.cuh).
struct GateTail {
  uint32_t* arrivals = nullptr;  ///< a counter per kChunkInputs activations; null: no activation
  int32_t width = 0;             ///< a multiple of kGroupOutputs
  Activation activation = Activation::kSilu;
  RowsView out = {};
  QuantTarget quantized = {};
};

/// Whether products of a type can end with an activation. In those of NVFP4 and Q4_0 for one row it
/// would cost a spill on some architectures.
constexpr bool ends_with_gate(DType type) {
  return type != DType::kF32 && type != DType::kNVFP4 && type != DType::kQ4_0;
}

/// Launches of one product, for segments of different types, run at the same time: they read the
/// same x and write different outputs. The first waits for the launch before the product, and lets
/// the next begin once that has ended. So the others find x when they begin; they wait for each
/// other at their end.
struct Turn {
  bool first = true;
  bool last = true;
};

/// Arguments of products of quantized weights.
struct QuantMatmul {
  MatmulRows rows;
  const std::byte* weights;
  int64_t expert_bytes;
  int32_t num_blocks;  ///< of 32 inputs
  int32_t chunks;
  int32_t outputs;                ///< of this segment
  const std::byte* x;             ///< (rows of the round, chunks * 256) activation_byte
  const ActivationBlock* blocks;  ///< (rows of the round, chunks * 8), or another RowForm
  RowsView residual;              ///< data null: none
  RowsView out;                   ///< `out` and `residual` begin at the segment's first output
  Turn turn;                      ///< not for experts
  GateTail gate;                  ///< not for experts, nor for slices of kManyRows
};

/// How a launch of few rows begins: with `load_first`, which loads the block's first weights while
/// the launch before still runs. An expert's weights are loaded later: which they are is a result
/// of that launch. Returns the block's rows.
template <typename Load>
__device__ RowSlice begin_with_weights(const QuantMatmul& p, int width, const Load& load_first) {
  if (p.turn.last) let_next_launch_begin();
  if (p.rows.slices == nullptr) load_first();
  if (p.turn.first) wait_for_previous_launch();
  if (!p.turn.last) let_next_launch_begin();
  return slice_of(p.rows, block_x(), width);
}
/// By every thread, when it has stored its results.
__device__ inline void end_turn(const QuantMatmul& p) {
  if (!p.turn.first) wait_for_previous_launch();
}

/// Launch a matrix product: run_quant for `slices` slices of `width` rows, run_quant_tiles for many
/// rows of a product without experts.
template <DType kType>
void run_quant(cudaStream_t stream, const QuantMatmul& params, int64_t slices, int width);
template <DType kType>
void run_quant_tiles(cudaStream_t stream, const QuantMatmul& params, int64_t rows);
/// The same for types with super-blocks; run_super_tiles where the device has wgmma, and
/// run_super_mma_tiles where it has not (CudaState::unconfirmed).
template <DType kType>
void run_super(cudaStream_t stream, const QuantMatmul& params, int64_t slices, int width);
template <DType kType>
void run_super_tiles(cudaStream_t stream, const QuantMatmul& params, int64_t rows);
template <DType kType>
void run_super_mma_tiles(cudaStream_t stream, const QuantMatmul& params, int64_t rows);

inline constexpr int kFewRows = 8;  ///< widths of slices; 1 is another
inline constexpr int kManyRows = 32;
inline constexpr int kTileRows = 64;  ///< rows of a block of the kernels for many rows
inline constexpr int kTileOutputs = 128;
/// From so many rows on, run_super_tiles is faster than slices.
inline constexpr int kSuperTilesFrom = 24;

/// Whether slices of kManyRows compute a product of quantized weights faster than tiles: if there
/// are so few tiles that most multiprocessors would have one or none. Products of fewer outputs
/// take little time either way.
inline bool better_in_slices(int64_t rows, int64_t outputs) {
  constexpr int64_t kLeastTiles = 200;
  const int64_t tiles =
      (rows + kTileRows - 1) / kTileRows * ((outputs + kTileOutputs - 1) / kTileOutputs);
  return rows <= 2 * kManyRows || (outputs >= 2 * kTileOutputs && tiles < kLeastTiles);
}

}  // namespace hearth::kernels
