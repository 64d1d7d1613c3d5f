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

/// Rows that share converted K and V: 16 tokens of 4 heads per kv head. Converting is then a
/// twentieth of the work, and all the data stays in L2.
inline constexpr int kMaxAttentionRows = 64;
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

struct AttentionSplit {
  const float* q[kMaxAttentionRows];  ///< k_dim values of each row
  int32_t num_rows;                   ///< 1 .. kMaxAttentionRows
  int32_t first[kMaxAttentionRows];   ///< positions that a row sees: first .. last
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
  // One tile of K and V as f32, l of each row in 16 lanes, and the scales of the tile's K and V.
  return kSoftmaxTile * (k_dim + padded_dims(v_dim)) + kMaxAttentionRows * 16 +
         kSoftmaxTile * ((k_dim + 31) / 32 + (v_dim + 31) / 32);
}

struct AttentionKernels {
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
extern const AttentionKernels kAttentionAvx512;
extern const AttentionKernels kAttentionNeon;

}  // namespace hearth::kernels
