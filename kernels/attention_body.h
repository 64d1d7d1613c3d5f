#pragma once
// The attention kernels, written once over a simd_*.h vocabulary and compiled per instruction set.
//
// Positions are walked in tiles of 16 at absolute multiples, with a running maximum per row (online
// softmax). A row's bits depend on nothing but its own q, its positions and their K and V: rows of
// a tile share loads, never sums, and a tile that some row sees only in part is finished row by
// row. V of a position is read for no row that does not see it: unused slots hold anything, NaN
// too.

#include "kernels/attention_kernels.h"
#include "kernels/simd_math.h"

namespace hearth::kernels {
namespace {

struct KvF32 {
  using T = float;
  static HEARTH_SIMD F load_lanes(const T* p) { return load(p); }
  static HEARTH_SIMD F load_some(const T* p, int n) { return load_partial(p, n); }
};
struct KvF16 {
  using T = uint16_t;
  static HEARTH_SIMD F load_lanes(const T* p) { return load_f16(p); }
  static HEARTH_SIMD F load_some(const T* p, int n) { return load_f16_partial(p, n); }
};
struct KvBf16 {
  using T = uint16_t;
  static HEARTH_SIMD F load_lanes(const T* p) { return load_bf16(p); }
  static HEARTH_SIMD F load_some(const T* p, int n) { return load_bf16_partial(p, n); }
};

constexpr float kMinusInfinity = -__builtin_inff();

/// Where one tile of 16 positions has its K (head_dim rows, block_size apart) and V.
template <typename T>
struct Tile {
  const T* k;
  const T* v;

  Tile(const AttentionSplit& a, int32_t position) {
    const int64_t block = a.blocks[position / a.block_size] * a.block_bytes;
    const int32_t offset = position % a.block_size;
    k = reinterpret_cast<const T*>(a.k + block) + offset;
    v = reinterpret_cast<const T*>(a.v + block) + static_cast<int64_t>(offset) * a.head_dim;
  }
};

/// Asks for a line of a later tile. Blocks lie anywhere in the pool, where no hardware prefetcher
/// finds them. Into L2, two tiles ahead, spread between the sums: one core decoding 4 heads per kv
/// head over 8192 positions reads KV at 17 GB/s so, at 6.5 with all lines of the next tile asked
/// for at once, at 5.8 without (EPYC, Zen 4).
template <typename T>
HEARTH_SIMD void prefetch(const T* line) {
  __builtin_prefetch(line, 0, 2);
}
constexpr int32_t kPrefetchAhead = 32;  // positions

/// e^x of one value, by the same operations as in a vector.
float exp1(float x) { return first(exp(set1(x))); }

/// score = cap * tanh(score / cap) for n scores, a multiple of 16.
void cap_scores(float* scores, int n, float cap) {
  for (int i = 0; i < n; i += kLanes) {
    store(scores + i, mul(tanh(div(load(scores + i), set1(cap))), set1(cap)));
  }
}

/// scores[r][j] = scale * q[r] . k[j] (soft capped) for the 16 positions of a tile. q is stored
/// (head_dim, kRows), so that one base register reaches every row.
template <typename Kv, int kRows>
void tile_scores(const AttentionSplit& a, const float* q, const typename Kv::T* k,
                 const typename Kv::T* next_k, float* scores) {
#pragma GCC unroll 4
  for (int part = 0; part < kParts; ++part) {
    F acc[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) acc[r] = zero();
    const typename Kv::T* column = k + part * kLanes;
    for (int32_t d = 0; d < a.head_dim; ++d) {
      const F kd = Kv::load_lanes(column);
      column += a.block_size;
      prefetch(next_k + static_cast<int64_t>(d) * a.block_size);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) acc[r] = fma(set1(q[d * kRows + r]), kd, acc[r]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      store(scores + 16 * r + part * kLanes, mul(acc[r], set1(a.scale)));
    }
  }
  if (a.soft_cap > 0) cap_scores(scores, 16 * kRows, a.soft_cap);
}

/// Turns 16 scores into weights against the row's new maximum, adds them to the 16 lanes of l, and
/// returns what earlier weights are to be multiplied with.
float tile_softmax(float* scores, float* m, float* l) {
  F s[kParts];
  for (int p = 0; p < kParts; ++p) s[p] = load(scores + p * kLanes);
  const float tile_max = max16(s);
  const float new_m = tile_max > *m ? tile_max : *m;
  const float alpha = new_m == *m ? 1.0f : exp1(*m - new_m);
  *m = new_m;
  for (int p = 0; p < kParts; ++p) {
    const F w = exp(sub(s[p], set1(new_m)));
    store(scores + p * kLanes, w);
    store(l + p * kLanes, fma(load(l + p * kLanes), set1(alpha), w));
  }
  return alpha;
}

/// o[r] = o[r] * alpha[r] + sum over positions j in [from, to) of weights[r][j] * v[j], j
/// ascending.
template <typename Kv, int kRows>
void tile_values(const typename Kv::T* v, const typename Kv::T* next_v, int32_t head_dim, int from,
                 int to, const float* weights, const float* alpha, float* o, int64_t o_stride) {
  int32_t d = 0;
  for (; d + kLanes <= head_dim; d += kLanes) {
    F acc[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) acc[r] = mul(load(o + r * o_stride + d), set1(alpha[r]));
    for (int j = from; j < to; ++j) {
      const F vj = Kv::load_lanes(v + static_cast<int64_t>(j) * head_dim + d);
      prefetch(next_v + static_cast<int64_t>(j) * head_dim + d);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) acc[r] = fma(set1(weights[16 * r + j]), vj, acc[r]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) store(o + r * o_stride + d, acc[r]);
  }
  if (d == head_dim) return;
  const int n = head_dim - d;
  for (int r = 0; r < kRows; ++r) {
    F acc = mul(load_partial(o + r * o_stride + d, n), set1(alpha[r]));
    for (int j = from; j < to; ++j) {
      const F vj = Kv::load_some(v + static_cast<int64_t>(j) * head_dim + d, n);
      acc = fma(set1(weights[16 * r + j]), vj, acc);
    }
    store_partial(o + r * o_stride + d, acc, n);
  }
}

template <typename Kv, int kRows>
void split_rows(const AttentionSplit& a, AttentionPartial* partial, float* o, int64_t o_stride) {
  using T = typename Kv::T;
  float* q = a.scratch;                                    // (head_dim, kRows)
  float* l = q + int64_t{kMaxAttentionRows} * a.head_dim;  // (kRows, 16)
  alignas(64) float scores[kRows * 16];
  float m[kRows];
  float alpha[kRows];
  int32_t seen_first = a.end;  // positions that any row sees, and those that all rows see
  int32_t seen_last = -1;
  int32_t all_first = 0;
  int32_t all_last = a.end;
  for (int r = 0; r < kRows; ++r) {
    m[r] = kMinusInfinity;
    for (int i = 0; i < 16; ++i) l[16 * r + i] = 0.0f;
    for (int64_t d = 0; d < a.head_dim; ++d) {
      q[d * kRows + r] = r < a.num_rows ? a.q[r][d] : 0.0f;
      o[r * o_stride + d] = 0.0f;
    }
    if (r >= a.num_rows) continue;
    if (a.first[r] < seen_first) seen_first = a.first[r];
    if (a.last[r] > seen_last) seen_last = a.last[r];
    if (a.first[r] > all_first) all_first = a.first[r];
    if (a.last[r] < all_last) all_last = a.last[r];
  }
  if (seen_first < a.begin) seen_first = a.begin;

  for (int32_t tile = seen_first / 16 * 16; tile < a.end && tile <= seen_last; tile += 16) {
    const Tile<T> at(a, tile);
    const int32_t later = tile + kPrefetchAhead;
    const Tile<T> next(a, later < a.end && later <= seen_last ? later : tile);
    tile_scores<Kv, kRows>(a, q, at.k, next.k, scores);
    if (tile >= all_first && tile + 15 <= all_last) {
      for (int r = 0; r < kRows; ++r) alpha[r] = tile_softmax(scores + 16 * r, m + r, l + 16 * r);
      tile_values<Kv, kRows>(at.v, next.v, a.head_dim, 0, 16, scores, alpha, o, o_stride);
      continue;
    }
    for (int r = 0; r < a.num_rows; ++r) {
      const int from = a.first[r] > tile ? a.first[r] - tile : 0;
      const int to = a.last[r] - tile < 15 ? a.last[r] - tile + 1 : 16;
      if (from >= to) continue;
      float* row = scores + 16 * r;
      for (int j = 0; j < 16; ++j) {
        if (j < from || j >= to) row[j] = kMinusInfinity;
      }
      alpha[r] = tile_softmax(row, m + r, l + 16 * r);
      tile_values<Kv, 1>(at.v, next.v, a.head_dim, from, to, row, alpha + r, o + r * o_stride,
                         o_stride);
    }
  }
  for (int r = 0; r < a.num_rows; ++r) {
    F lanes[kParts];
    for (int p = 0; p < kParts; ++p) lanes[p] = load(l + 16 * r + p * kLanes);
    partial->m[r] = m[r];
    partial->l[r] = sum16(lanes);
  }
}

template <typename Kv>
void attend_split(const AttentionSplit& a, AttentionPartial* partial, float* o, int64_t o_stride) {
  if (a.num_rows == 1) return split_rows<Kv, 1>(a, partial, o, o_stride);
  if (a.num_rows == 2) return split_rows<Kv, 2>(a, partial, o, o_stride);
  if (a.num_rows <= 4) return split_rows<Kv, 4>(a, partial, o, o_stride);
  if constexpr (kMaxRows >= 8) return split_rows<Kv, 8>(a, partial, o, o_stride);
  __builtin_trap();
}

void merge(float* m, float* l, float* o, float later_m, float later_l, const float* later_o,
           int32_t head_dim) {
  if (later_m == kMinusInfinity) return;
  if (*m == kMinusInfinity) {
    *m = later_m;
    *l = later_l;
    for (int32_t d = 0; d < head_dim; ++d) o[d] = later_o[d];
    return;
  }
  const float new_m = later_m > *m ? later_m : *m;
  const float alpha = exp1(*m - new_m);
  const float beta = exp1(later_m - new_m);
  *m = new_m;
  *l = fma(*l, alpha, later_l * beta);
  for (int32_t d = 0; d < head_dim; ++d) o[d] = fma(o[d], alpha, later_o[d] * beta);
}

void finish(float m, float l, const float* o, const float* sink, int32_t head_dim, float* out) {
  float scale = 1.0f;
  if (sink != nullptr) {
    const float new_m = *sink > m ? *sink : m;
    scale = exp1(m - new_m);
    l = fma(l, scale, exp1(*sink - new_m));
  }
  const float inverse = scale / l;
  for (int32_t d = 0; d < head_dim; ++d) out[d] = o[d] * inverse;
}

constexpr AttentionKernels attention_kernels() {
  return {kMaxRows, attend_split<KvF32>, attend_split<KvF16>, attend_split<KvBf16>, merge, finish};
}

}  // namespace
}  // namespace hearth::kernels
