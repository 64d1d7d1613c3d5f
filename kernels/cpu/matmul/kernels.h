#pragma once
// The interface of matmul to one instruction set: packing of activations, and dot products over one
// panel. Plain data, because files built for one instruction set include this header.
//
// Packed weights. Outputs come in groups of 16 (the last padded with zeros); each is contiguous:
//   f32, f16, bf16   (cols, 16)
//   Q8_0             pairs of K blocks, so that a group is one aligned stream: bytes (2, 8, 16, 4)
//                    with input 4 j + i of output lane at [j][lane][i], stored as value + 128; then
//                    their scales, (2, 16) f16. A last block without a partner leaves a gap.
//   other quantized  quant/quant_layout.h
// Unpacked weights are thread scratch, from which panels of many token rows are computed: per block
// of 32 inputs bytes (8, 16, 4), scales (subs, 16) f32 and, if the type has them, mins (subs, 16)
// f32.
// Packed activations. Token rows come in tiles of one of `widths`; rows past the last are zero:
//   plain            (cols, width) f32
//   quantized        (cols / 32) blocks of { d: f32, minus_128_sum: i32, q: (8, width, 4) i8,
//                    d_sum: f32, of both halves: minus_128_sum i32 (2), d_sum f32 (2) }, each as
//                    (.., width); d_sum = d * float(sum of q)
// Sums are kept as (groups, width, 16) f32, so that a long K can be processed in panels that fit
// the cache: storing and reloading a chain changes no bit.

#include <cstdint>

#include "kernels/quant/quant_layout.h"

namespace hearth::kernels {

inline constexpr int kGroup = 16;            ///< outputs per group of packed weights
inline constexpr int kQuantBlock = 32;       ///< inputs that share one scale
inline constexpr int kQuantBlockBytes = 60;  ///< packed activations of one block, per token row

/// Offsets of the bytes and the scales of block b within a packed Q8_0 group.
inline constexpr int kQ8PairBytes = 2 * (kQuantBlock * kGroup + 2 * kGroup);
constexpr int64_t q8_bytes_at(int64_t b) { return b / 2 * kQ8PairBytes + b % 2 * 512; }
constexpr int64_t q8_scales_at(int64_t b) { return b / 2 * kQ8PairBytes + 1024 + b % 2 * 32; }

/// Bytes of one block of unpacked weights.
constexpr int32_t unpacked_block_bytes(const QuantLayout& layout) {
  return kQuantBlock * kGroup + layout.subs * (layout.has_min ? 2 : 1) * kGroup * 4;
}

/// Rows of activations to pack into one tile.
struct PackTile {
  const float* x;         ///< row 0
  int64_t stride;         ///< floats between rows
  const int32_t* row_of;  ///< the row of x for each row of the tile; null: 0, 1, ..
  int32_t rows;           ///< 1 .. width
  int32_t width;
  int64_t first;  ///< inputs [first, last) are packed; multiples of 32 when quantized
  int64_t last;
  void* tile;

  const float* row(int32_t t) const { return x + (row_of != nullptr ? row_of[t] : t) * stride; }
};

/// Rows of a tile from which kernels of plain weights prefetch: with fewer they compute so little
/// that memory is busy anyway.
inline constexpr int kLeastPlainAhead = 4;

/// Packed weights to prefetch for later: `lines` cache lines of each group per block. Of plain
/// weights, if `lines` is not 0, those as far ahead of each input as `at` is of input 0.
struct Ahead {
  const uint8_t* at;    ///< in the first group
  int64_t group_bytes;  ///< distance to the same place in the next group
  int64_t block_bytes;  ///< distance to the lines fetched with the next block
  int32_t lines;        ///< 0: nothing
  bool soon;            ///< prefetch into L1; else into L2
};

/// Dot products of one tile of token rows with some groups of outputs over inputs [first, last).
struct MatmulPanel {
  const uint8_t* weights;  ///< first group; for unpacked weights, its block first / 32
  int64_t group_bytes;     ///< from one group to the next
  int32_t num_groups;
  const void* tile;
  int32_t width;
  int64_t first;  ///< 0 starts the chains, otherwise they continue from `sums`
  int64_t last;
  float* sums;
  Ahead ahead;
};

/// Unpacks inputs [first, last) of some groups.
struct UnpackPanel {
  const uint8_t* weights;
  int64_t group_bytes;
  int32_t num_groups;
  int64_t first;
  int64_t last;
  uint8_t* out;  ///< group after group, (last - first) / 32 blocks each
};

/// The kernels of one of kQuantTypes. Both ways give the same bits: straight from the packed group,
/// for one tile, or unpacked once for several.
struct QuantKernels {
  void (*direct)(const MatmulPanel&);
  void (*unpack)(const UnpackPanel&);
  void (*unpacked)(const MatmulPanel&);
};

/// Types that share the code for unpacked weights. Each family is a source file of its own, because
/// these are the slowest files to compile.
enum class QuantFamily { kOffset, kMin, kWide, kHalves };
constexpr QuantFamily quant_family(const QuantLayout& layout) {
  if (layout.subs == 2) return QuantFamily::kHalves;
  if (layout.wide()) return QuantFamily::kWide;
  return layout.has_min ? QuantFamily::kMin : QuantFamily::kOffset;
}
/// The kernels of one family by quant_index(); those of other types are null.
struct FamilyKernels {
  QuantKernels of[kNumQuantTypes];
};

/// Writes the sums of one token row, times `scale`, to the output.
struct WriteSums {
  const float*
      sums;  ///< the row's first 16; those of the next group are `width` times 16 floats further on
  int32_t width;  ///< of the tile
  float scale;
  const float* residual;  ///< added; null: none
  int64_t outputs;
  float* out;
};

struct MatmulKernels {
  int32_t widths[5];   ///< available tile widths, ascending; 0 ends the list
  int32_t many_width;  ///< the fastest width for many rows
  void (*pack_plain)(const PackTile&);
  void (*pack_quantized)(const PackTile&);
  void (*f32)(const MatmulPanel&);
  void (*f16)(const MatmulPanel&);
  void (*bf16)(const MatmulPanel&);
  void (*q8_0)(const MatmulPanel&);
  void (*write)(const WriteSums&);
  const QuantKernels* quant[kNumQuantTypes];  ///< by quant_index()
};

/// The tables of one instruction set (kernels/cpu/instruction_sets.cmake).
#define HEARTH_MATMUL_TABLES(set)                \
  extern const MatmulKernels kMatmul##set;       \
  extern const FamilyKernels kMatmulOffset##set; \
  extern const FamilyKernels kMatmulMin##set;    \
  extern const FamilyKernels kMatmulWide##set;   \
  extern const FamilyKernels kMatmulHalves##set
HEARTH_MATMUL_TABLES(Plain);
HEARTH_MATMUL_TABLES(Avx2);
HEARTH_MATMUL_TABLES(Avx2Vnni);
HEARTH_MATMUL_TABLES(Avx512);
HEARTH_MATMUL_TABLES(Avx512Vnni);
HEARTH_MATMUL_TABLES(Neon);
HEARTH_MATMUL_TABLES(NeonDot);
#undef HEARTH_MATMUL_TABLES

}  // namespace hearth::kernels
