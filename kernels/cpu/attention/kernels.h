#pragma once
// The interface of attention to one instruction set. Plain data, because files built for one
// instruction set include this header.
//
// A row is one query head of one token. Rows of one sequence that share a kv head are computed
// together, so that each K and V is loaded and converted once for all of them. A row's result over
// one split of positions is a partial softmax: the largest score m and, with weights e^(score - m),
// their sum l and the weighted sum of V, o. Rows without a position in the split have m =
// -infinity.

#include <cstdint>

#include "kernels/ops/kv_type.h"

namespace hearth::kernels {

/// Rows that share a tile of K and V: 32 tokens of 4 heads per kv head. Converting it is then a
/// fortieth of the work, and all the data stays in L2. Half as many rows took 1.04 times as long
/// over f16.
inline constexpr int kMaxAttentionRows = 128;
/// Positions that share one update of a row's maximum. Tiles start at absolute multiples; the size
/// divides kAttentionSplit and is part of the numerics.
inline constexpr int kSoftmaxTile = 64;

/// Partial softmax of up to kMaxAttentionRows rows: o of row r is at o + r * padded_dims(v_dim).
struct AttentionPartial {
  float m[kMaxAttentionRows];
  float l[kMaxAttentionRows];
};

/// Rows of V and o in scratch memory are padded to a whole vector.
constexpr int64_t padded_dims(int64_t dims) { return (dims + 15) / 16 * 16; }

/// 32 values of a query as codes (kernels/ops/attention_rounding.h).
struct QueryBlock {
  float scale;
  int32_t start;  ///< -128 times the sum of the codes
  int8_t codes[32];
};

struct AttentionSplit {
  const float* q[kMaxAttentionRows];           ///< k_dim values of each row
  const QueryBlock* codes[kMaxAttentionRows];  ///< of them, if K's products are of integers
  int32_t num_rows;                            ///< 1 .. kMaxAttentionRows
  int32_t first[kMaxAttentionRows];            ///< positions that a row sees: first .. last
  int32_t last[kMaxAttentionRows];
  int32_t begin;  ///< positions of the split, absolute; multiples of kSoftmaxTile
  int32_t end;
  int32_t last_ahead;     ///< last position after the split whose memory may be prefetched
  const int32_t* blocks;  ///< logical block -> physical block
  const char* k;          ///< K of the kv head in physical block 0 (layouts: kv_layout.h)
  const char* v;          ///< V of the kv head in physical block 0; null: the front of K
  KvType k_type;
  KvType v_type;
  int64_t block_bytes;
  int32_t block_size;
  int32_t k_dim;
  int32_t v_dim;
  float scale;
  float soft_cap;  ///< 0: none
  float* scratch;  ///< attention_scratch_floats(k_dim, v_dim)
};

constexpr int64_t attention_scratch_floats(int64_t k_dim, int64_t v_dim) {
  const int64_t k_scales = (k_dim + 31) / 32;
  const int64_t v_scales = (v_dim + 31) / 32;
  // l of each row in 16 lanes; one tile of K (whole 32s) and V as f32, and their scales; 16-bit
  // numbers and an f32 per scale of V, of a tile and of 4 rows.
  return kMaxAttentionRows * 16 + kSoftmaxTile * (k_scales * 32 + padded_dims(v_dim)) +
         kSoftmaxTile * (k_scales + v_scales) + 5 * v_scales * (kSoftmaxTile / 2 + 1);
}

struct AttentionKernels {
  /// A query of k_dim values, rotated first if K is, as codes. `scale` is that of its scores.
  void (*quantize)(const float* q, int32_t k_dim, bool rotated, float scale, QueryBlock* out);
  /// Computes one split into (partial, o).
  void (*attend)(const AttentionSplit&, AttentionPartial* partial, float* o);
  /// Merges a row's later partial into its earlier one: (m, l, o) of `v_dim` values.
  void (*merge)(float* m, float* l, float* o, float later_m, float later_l, const float* later_o,
                int32_t v_dim);
  /// out = o / l, with `sink` as one more logit if it is given.
  void (*finish)(float m, float l, const float* o, const float* sink, int32_t v_dim, float* out);
};

extern const AttentionKernels kAttentionPlain;
extern const AttentionKernels kAttentionAvx2;
extern const AttentionKernels kAttentionAvx2Vnni;
extern const AttentionKernels kAttentionAvx512;
extern const AttentionKernels kAttentionAvx512Vnni;
extern const AttentionKernels kAttentionNeon;

}  // namespace hearth::kernels
