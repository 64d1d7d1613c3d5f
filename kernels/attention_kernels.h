#pragma once
// What attention is to one instruction set. Plain data: files built for one instruction set include
// this.
//
// A row is one query head of one token. Rows of one sequence that share a kv head are computed
// together, so that each load of K and V serves all of them. A row's result over one split of
// positions is a partial softmax: the largest score m, and with weights e^(score - m) their sum l
// and the weighted sum of V, o. Rows without a position in the split have m = -infinity.

#include <cstdint>

namespace hearth::kernels {

inline constexpr int kMaxAttentionRows = 8;  ///< of all instruction sets

enum class KvType { kF32, kF16, kBf16 };

/// Partial softmax of up to kMaxAttentionRows rows: o of row r is at o + r * o_stride.
struct AttentionPartial {
  float m[kMaxAttentionRows];
  float l[kMaxAttentionRows];
};

struct AttentionSplit {
  const float* q[kMaxAttentionRows];  ///< head_dim values of each row
  int32_t num_rows;                   ///< 1 .. max_rows
  int32_t first[kMaxAttentionRows];   ///< positions that a row sees: first .. last
  int32_t last[kMaxAttentionRows];
  int32_t begin;  ///< positions of the split, absolute; multiples of 16 apart from `end`
  int32_t end;
  const int32_t* blocks;  ///< logical block -> physical block
  const char* k;          ///< K of the kv head in physical block 0: (head_dim, block_size)
  const char* v;          ///< V of the kv head in physical block 0: (block_size, head_dim)
  int64_t block_bytes;
  int32_t block_size;
  int32_t head_dim;
  float scale;
  float soft_cap;  ///< 0: none
  float* scratch;  ///< attention_scratch_floats(head_dim)
};

constexpr int64_t attention_scratch_floats(int64_t head_dim) {
  return kMaxAttentionRows * (head_dim + 16);
}

struct AttentionKernels {
  int32_t max_rows;
  /// Computes one split into (partial, o); o is (num_rows rounded up to a power of 2, o_stride).
  void (*f32)(const AttentionSplit&, AttentionPartial* partial, float* o, int64_t o_stride);
  void (*f16)(const AttentionSplit&, AttentionPartial* partial, float* o, int64_t o_stride);
  void (*bf16)(const AttentionSplit&, AttentionPartial* partial, float* o, int64_t o_stride);
  /// Adds a row's later partial to its earlier one: (m, l, o) of `head_dim` values.
  void (*merge)(float* m, float* l, float* o, float later_m, float later_l, const float* later_o,
                int32_t head_dim);
  /// out = o / l, with `sink` as one more logit where it is given.
  void (*finish)(float m, float l, const float* o, const float* sink, int32_t head_dim, float* out);
};

extern const AttentionKernels kAttentionPlain;
extern const AttentionKernels kAttentionAvx2;
extern const AttentionKernels kAttentionAvx512;

}  // namespace hearth::kernels
