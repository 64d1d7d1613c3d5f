#pragma once
// Layout of quantized weights on the device: the file's bits in the order of the tensor cores'
// operands. One set of index functions for the packing code on the host and for the kernels.
//
// Outputs are in groups of 16, the rows of one instruction; inputs in chunks of 256. A group's
// chunks are consecutive; the padding of a last group or chunk never affects a result. A chunk:
//   heads    K types: per output d as f16, then dmin as f16 if there are mins
//   scales   per output, 16 or 8 bytes
//              types of 32: 8 f16 d (MXFP4: 8 bytes E8M0); Q4_1, Q5_1: after all d, 8 f16 m
//              NVFP4: 16 bytes UE4M3
//              Q4_K, Q5_K: 8 scales, 8 mins; Q2_K: 16 times scale low, min high
//              other types: 8 or 16 int8; TQ1_0 and TQ2_0, which have no such scales: ones
//   planes   each (.., 32 lanes, 16 bytes): a lane loads its share in one load
//              bytes    8 of them, one per block of 32 inputs
//              nibbles  4: block b in [b / 2], nibble b % 2
//              twos     2: block b in [b / 4], field b % 4 of two bits
//              ones     1: bit b
//            A code is its nibble or its two bits, with the bits of the next plane above them.
// Of a lane's 16 bytes, byte i of word r belongs to output lane / 4 + 8 (r % 2) and to input
// 16 (r / 2) + 4 (lane % 4) + i of the block: operand A of mma.m16n8k32 (PTX ISA, "Matrix Fragments
// for mma.m16n8k32").
//
// Activations take 64 bytes per row and pair of blocks: (4, 2, 8) at [i % 16 / 4][block % 2], with
// inputs i % 4 of the lower 16 followed by those of the upper: operand B. Each block also has a
// scale and the sums of its halves.

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/host/state.h"
#include "kernels/ops/dtype.h"
#include "kernels/quant/quant_layout.h"

namespace hearth::kernels {

/// Whether 256 weights share d, as super-blocks of integers; x is then quantized per 256 inputs.
constexpr bool is_super(DType type) {
  return type != DType::kQ8_0 && quant_layout(type).block == 256;
}

inline constexpr int kGroupOutputs = 16;
inline constexpr int kChunkInputs = 256;
inline constexpr int kChunkBlocks = 8;
inline constexpr int kPlaneBytes = 512;

struct QuantForm {
  bool of_32;  ///< d is per 32 inputs or, in NVFP4, per 16, without integer scales
  int subs;    ///< scales per 32 inputs: 1 or 2
  bool has_min;
  int offset;  ///< subtracted from each code
  bool bytes, nibbles, twos, ones;
  Codebook codebook;
  int head_bytes;   ///< per output and chunk
  int scale_bytes;  ///< per output and chunk

  __host__ __device__ constexpr int num_planes() const {
    return (bytes ? 8 : 0) + (nibbles ? 4 : 0) + (twos ? 2 : 0) + (ones ? 1 : 0);
  }
  __host__ __device__ constexpr int first_two() const { return nibbles ? 4 : 0; }
  __host__ __device__ constexpr int first_one() const { return first_two() + (twos ? 2 : 0); }
  /// Whether codes with an upper bit in a plane of its own are looked up.
  __host__ __device__ constexpr bool looks_up_ones() const {
    return ones && codebook != Codebook::kNone;
  }
  __host__ __device__ constexpr int scales_at() const { return kGroupOutputs * head_bytes; }
  __host__ __device__ constexpr int planes_at() const {
    return kGroupOutputs * (head_bytes + scale_bytes);
  }
  __host__ __device__ constexpr int chunk_bytes() const {
    return planes_at() + num_planes() * kPlaneBytes;
  }
};

constexpr QuantForm quant_form(DType type) {
  if (type == DType::kQ8_0) {
    return {true, 1, false, 0, true, false, false, false, Codebook::kNone, 0, 16};
  }
  QuantLayout l = quant_layout(type);
  if (type == DType::kIQ1_S || type == DType::kIQ1_M) {  // with the eighths above the levels
    l.has_min = false;
    l.ones = true;
    l.codebook = Codebook::kIq1;
  } else if (packed_as(type) == DType::kTQ2_0) {
    l.codebook = Codebook::kTernary;
  }
  const bool of_32 = l.block < 256;
  const int offset = l.codebook == Codebook::kNone ? l.offset : 0;
  const int head = of_32 ? 0 : l.has_min ? 4 : 2;
  const bool one_integer = !of_32 && !l.has_min && l.subs == 1;
  const int scale = type == DType::kMXFP4 || one_integer ? 8 : of_32 && l.has_min ? 32 : 16;
  return {of_32,  l.subs, l.has_min,  offset, false, l.nibbles,
          l.twos, l.ones, l.codebook, head,   scale};
}

__host__ __device__ constexpr int64_t num_chunks(int64_t cols) {
  return (cols + kChunkInputs - 1) / kChunkInputs;
}

/// Byte in a lane's share of a plane of whole bytes, for (output of the group, input of the block).
__host__ __device__ constexpr int share_byte(int output, int input) {
  const int lane = output % 8 * 4 + input % 16 / 4;
  const int word = output / 8 + input / 16 * 2;
  return lane * 16 + word * 4 + input % 4;
}

/// Byte offset of an activation in its row.
__host__ __device__ constexpr int64_t activation_byte(int64_t input) {
  const int64_t block = input / 32;
  const int64_t i = input % 32;
  return block / 2 * 64 + i % 16 / 4 * 16 + block % 2 * 8 + i / 16 * 4 + i % 4;
}

/// Scale and sums of 32 quantized activations.
struct alignas(8) ActivationBlock {
  float d;
  int16_t sum[2];  ///< over the lower and the upper 16
};

/// The same if 256 activations share a scale, for types with super-blocks. Here the two sums are
/// 32 * high + low, so that the tensor cores can multiply them by the block's integers.
struct alignas(8) SuperActivation {
  float d;
  uint32_t sums;  ///< bytes: low of both, high of both
};
static_assert(sizeof(SuperActivation) == sizeof(ActivationBlock));
/// Bytes of a sum over 16 activations, -127 * 16 to 127 * 16.
__host__ __device__ constexpr int high_of_sum(int sum) { return (sum + 16) >> 5; }
__host__ __device__ constexpr int low_of_sum(int sum) { return sum - 32 * high_of_sum(sum); }

// For many rows of types with super-blocks, activations lie in the order in which wgmma reads
// operand B (kernels/cuda/wgmma.cuh): (rows / 8, chunks, 16, 8 rows, 16 bytes). The sums likewise,
// (rows / 8, chunks, 2, 8 rows, 16 bytes), first the low bytes of a chunk's 16 sums. Then the
// TileTerms, (chunks, kQuantRows).
inline constexpr int kRowTile = 8;
inline constexpr int kOperandUnits = kChunkInputs / 16;  ///< of a row and chunk
inline constexpr int kSumUnits = 2;
inline constexpr int kUnitBytes = kRowTile * 16;
struct alignas(8) TileTerm {
  float d;
  int sum;  ///< of all 256
};
/// Byte `at` of a unit, of `units` per row and chunk.
__host__ __device__ constexpr int64_t operand_byte(int64_t row, int chunk, int chunks, int units,
                                                   int unit, int at) {
  return ((row / kRowTile * chunks + chunk) * units + unit) * kUnitBytes + row % kRowTile * 16 + at;
}

/// Bytes before the TileTerms.
__host__ __device__ constexpr int64_t tile_terms_at(int64_t chunks) {
  return kQuantRows * chunks * (kSumUnits * 16);
}

/// Where quantized rows are stored.
struct QuantTarget {
  int8_t* values;           ///< null: not stored
  ActivationBlock* blocks;  ///< or what the form has in their place
  int32_t chunks;
  RowForm form;
};

/// Rows of one expert, as list_slices() lists them.
struct ExpertSlice {
  int32_t expert;
  int32_t first;  ///< in the list of choices
  int32_t num_rows;
  int32_t unused;
};

}  // namespace hearth::kernels
