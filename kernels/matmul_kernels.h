#pragma once
// What a matmul is to one instruction set: packing of activations, and one panel of dot products.
// Plain data: files built for one instruction set include this.
//
// Packed weights. Outputs come in groups of 16 (the last padded with zeros); a group is contiguous:
//   f32, f16, bf16   (cols, 16)
//   Q8_0             pairs of K blocks, so that a group is one aligned stream: bytes (2, 8, 16, 4),
//                    input 4 j + i of output lane at [j][lane][i], stored as value + 128; then
//                    their scales, (2, 16) f16. A last block without a partner leaves a gap.
// Packed activations. Token rows come in tiles of one of `widths`, rows past the last are zero:
//   plain            (cols, width) f32
//   quantized        (cols / 32) blocks of { d: width f32, minus_128_sum: width i32, (8, width, 4)
//   i8 }
// Sums are kept as (groups, width, 16) f32, so that a long K can be walked in panels that fit the
// cache: stored and read back, a chain is the same to the bit.

#include <cstdint>

namespace hearth::kernels {

inline constexpr int kGroup = 16;            ///< outputs per group of packed weights
inline constexpr int kQuantBlock = 32;       ///< inputs that share one scale
inline constexpr int kMaxTileWidth = 12;     ///< of all instruction sets
inline constexpr int kQuantBlockBytes = 40;  ///< packed activations of one block, per token row

/// Where block b of a packed Q8_0 group has its bytes and its scales, in bytes from the group.
inline constexpr int kQ8PairBytes = 2 * (kQuantBlock * kGroup + 2 * kGroup);
constexpr int64_t q8_bytes_at(int64_t b) { return b / 2 * kQ8PairBytes + b % 2 * 512; }
constexpr int64_t q8_scales_at(int64_t b) { return b / 2 * kQ8PairBytes + 1024 + b % 2 * 32; }

/// Rows of activations to pack into one tile.
struct PackTile {
  const float* x;  ///< first row
  int64_t stride;  ///< floats between rows
  int32_t rows;    ///< 1 .. width
  int32_t width;
  int64_t first;  ///< inputs [first, last) are packed; multiples of 32 when quantized
  int64_t last;
  void* tile;
};

/// Dot products of one tile of token rows with some groups of outputs over inputs [first, last).
struct MatmulPanel {
  const uint8_t* weights;  ///< first group
  int64_t group_bytes;     ///< from one group to the next
  int32_t num_groups;
  const void* tile;
  int32_t width;
  int64_t cols;   ///< inputs of a whole output
  int64_t first;  ///< 0 starts the chains, otherwise they go on from `sums`
  int64_t last;
  float* sums;
};

struct MatmulKernels {
  int32_t widths[6];  ///< tile widths that exist, ascending; 0 ends the list
  void (*pack_plain)(const PackTile&);
  void (*pack_quantized)(const PackTile&);
  void (*f32)(const MatmulPanel&);
  void (*f16)(const MatmulPanel&);
  void (*bf16)(const MatmulPanel&);
  void (*q8_0)(const MatmulPanel&);
};

extern const MatmulKernels kMatmulPlain;
extern const MatmulKernels kMatmulAvx2;
extern const MatmulKernels kMatmulAvx512;
extern const MatmulKernels kMatmulAvx512Vnni;

}  // namespace hearth::kernels
