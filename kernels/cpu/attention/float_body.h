#pragma once
// Attention over f32 KV, and what combines partial results of any type, written once against the
// vocabulary of kernels/cpu/simd, compiled per instruction set.
//
// Positions are processed in tiles of kSoftmaxTile at absolute multiples, with a running maximum
// per row (online softmax). K and V of a tile are copied to scratch memory once for all rows. A
// row's bits depend only on its own q, its positions and their K and V: every score is one chain
// over k_dim and every o is one chain over positions, however rows are grouped. V of a position is
// not read for a row that does not see the position: unused slots may hold anything, even NaN.

#include "kernels/cpu/attention/shared_body.h"

namespace hearth::kernels {
namespace {

// Rows and vectors in one block of chains: enough to hide fma latency, few enough for the registers
// (16 + 4 + 1 of 32, 8 + 2 + 1 of 16).
constexpr int kRowBlock = 4;
constexpr int kVecBlock = kRegisters == 32 ? 4 : 2;

/// 16 positions of K (k_dim, block_size) as columns of (k_dim, kSoftmaxTile).
void copy_k(const AttentionSplit& a, const char* block, int32_t offset, float* out) {
  const float* from = reinterpret_cast<const float*>(block) + offset;
  for (int32_t d = 0; d < a.k_dim; ++d, from += a.block_size, out += kSoftmaxTile) {
    for (int p = 0; p < kParts; ++p) store(out + p * kLanes, load(from + p * kLanes));
  }
}

/// 16 positions of V (block_size, v_dim) as rows of (16, padded), with zeros after v_dim.
void copy_v(const AttentionSplit& a, const char* block, int32_t offset, float* out) {
  const int32_t n = a.v_dim;
  const int64_t padded = padded_dims(n);
  const float* from = reinterpret_cast<const float*>(block) + int64_t{offset} * n;
  for (int j = 0; j < kSubTile; ++j, from += n, out += padded) {
    int32_t d = 0;
    for (; d + kLanes <= n; d += kLanes) store(out + d, load(from + d));
    if (d < n) store(out + d, load_partial(from + d, n - d));
    for (d = (n + kLanes - 1) / kLanes * kLanes; d < padded; d += kLanes) store(out + d, zero());
  }
}

/// V of 16 positions that lies in K: transposes the first v_dim rows of k (k_dim, kSoftmaxTile) to
/// rows of (16, padded), with zeros after v_dim.
void front_of_k(const float* k, int32_t v_dim, int64_t padded, float* out) {
  for (int64_t first = 0; first < padded; first += 16) {
    alignas(64) float square[16 * 16];
    for (int i = 0; i < 16; ++i) {
      const bool there = first + i < v_dim;
      for (int p = 0; p < kParts; ++p) {
        const F row = there ? load(k + (first + i) * kSoftmaxTile + p * kLanes) : zero();
        store(square + i * 16 + p * kLanes, row);
      }
    }
    for (int j = 0; j < 16; ++j) {
      for (int i = 0; i < 16; ++i) out[j * padded + first + i] = square[i * 16 + j];
    }
  }
}

/// K and V of one tile.
struct FloatTile {
  const float* k;  ///< (k_dim, kSoftmaxTile)
  const float* v;  ///< (kSoftmaxTile, padded)
  int64_t padded;

  HEARTH_SIMD F k_lanes(int32_t d, int vec) const {
    return load(k + d * kSoftmaxTile + vec * kLanes);
  }
  HEARTH_SIMD F v_lanes(int j, int64_t d) const { return load(v + j * padded + d); }
};

// ---- Blocks of chains -------------------------------------------------------------------------

/// e^x of one value, computed by the same operations as in a vector.
float exp1(float x) { return first(exp(set1(x))); }

/// score = cap * tanh(score / cap) for n scores, a multiple of 16.
void cap_scores(float* scores, int n, float cap) {
  for (int i = 0; i < n; i += kLanes) {
    store(scores + i, mul(tanh(div(load(scores + i), set1(cap))), set1(cap)));
  }
}

/// scores[r][j] = scale * q[r] . k[j] (with soft cap) for the positions of a tile.
template <int kRows, bool kAsk>
void tile_scores(const AttentionSplit& a, const float* const* q, const FloatTile& kv,
                 const Next& next, float* scores) {
  const int32_t n = a.k_dim;
  const float* row[kRows];
  for (int r = 0; r < kRows; ++r) row[r] = q[r];
  for (int first_vec = 0; first_vec < kSoftmaxTile / kLanes; first_vec += kVecBlock) {
    F acc[kRows][kVecBlock];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int i = 0; i < kVecBlock; ++i) acc[r][i] = zero();
    }
    for (int32_t d = 0; d < n; ++d) {
      F kd[kVecBlock];
#pragma GCC unroll 4
      for (int i = 0; i < kVecBlock; ++i) kd[i] = kv.k_lanes(d, first_vec + i);
      if constexpr (kAsk) next.ask_k(d);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const F qd = set1(row[r][d]);
#pragma GCC unroll 4
        for (int i = 0; i < kVecBlock; ++i) acc[r][i] = fma(qd, kd[i], acc[r][i]);
      }
    }
    float* out = scores + first_vec * kLanes;
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int i = 0; i < kVecBlock; ++i) {
        store(out + r * kSoftmaxTile + i * kLanes, mul(acc[r][i], set1(a.scale)));
      }
    }
  }
  if (a.soft_cap > 0) cap_scores(scores, kRows * kSoftmaxTile, a.soft_cap);
}

/// Turns a row's scores of a tile into weights relative to its new maximum, adds them to the 16
/// lanes of l, and returns the factor for earlier weights.
float tile_softmax(float* scores, float* m, float* l) {
  F largest[kParts];
  for (int p = 0; p < kParts; ++p) largest[p] = load(scores + p * kLanes);
  for (int i = 16; i < kSoftmaxTile; i += 16) {
    for (int p = 0; p < kParts; ++p) {
      largest[p] = max(largest[p], load(scores + i + p * kLanes));
    }
  }
  const float tile_max = max16(largest);
  const float new_m = tile_max > *m ? tile_max : *m;
  const float alpha = new_m == *m ? 1.0f : exp1(*m - new_m);
  *m = new_m;
  F sum[kParts];
  for (int p = 0; p < kParts; ++p) sum[p] = mul(load(l + p * kLanes), set1(alpha));
  for (int i = 0; i < kSoftmaxTile; i += 16) {
    for (int p = 0; p < kParts; ++p) {
      const F w = exp(sub(load(scores + i + p * kLanes), set1(new_m)));
      store(scores + i + p * kLanes, w);
      sum[p] = add(sum[p], w);
    }
  }
  for (int p = 0; p < kParts; ++p) store(l + p * kLanes, sum[p]);
  return alpha;
}

/// o[r] = o[r] * alpha[r] + sum over positions j in [from, to) of weights[r][j] * v[j], j
/// ascending, for kVecs vectors of each o.
template <int kRows, int kVecs, bool kAsk>
HEARTH_SIMD void values_block(const FloatTile& kv, int64_t padded, int64_t first, int from, int to,
                              const float* weights, const float* alpha, const Next& next,
                              float* o) {
  F acc[kRows][kVecs];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < kVecs; ++i) {
      acc[r][i] = mul(load(o + r * padded + first + i * kLanes), set1(alpha[r]));
    }
  }
  for (int j = from; j < to; ++j) {
    F vj[kVecs];
#pragma GCC unroll 4
    for (int i = 0; i < kVecs; ++i) vj[i] = kv.v_lanes(j, first + i * kLanes);
    if constexpr (kAsk) next.ask_v(j, first);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const F w = set1(weights[r * kSoftmaxTile + j]);
#pragma GCC unroll 4
      for (int i = 0; i < kVecs; ++i) acc[r][i] = fma(w, vj[i], acc[r][i]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < kVecs; ++i) store(o + r * padded + first + i * kLanes, acc[r][i]);
  }
}

template <int kRows, bool kAsk>
void tile_values(const FloatTile& kv, int64_t padded, int from, int to, const float* weights,
                 const float* alpha, const Next& next, float* o) {
  int64_t d = 0;
  for (; d + kVecBlock * kLanes <= padded; d += kVecBlock * kLanes) {
    values_block<kRows, kVecBlock, kAsk>(kv, padded, d, from, to, weights, alpha, next, o);
  }
  for (; d < padded; d += kLanes) {
    values_block<kRows, 1, kAsk>(kv, padded, d, from, to, weights, alpha, next, o);
  }
}

/// kRows rows, starting with `row`, over one tile; all of them see `range`.
template <int kRows, bool kAsk>
void rows_of_tile(const Work& w, const FloatTile& kv, int row, const Range& range,
                  const Next& next) {
  alignas(64) float scores[kRows * kSoftmaxTile];
  float alpha[kRows];
  tile_scores<kRows, kAsk>(w.a, w.a.q + row, kv, next, scores);
  for (int r = 0; r < kRows; ++r) {
    float* mine = scores + r * kSoftmaxTile;
    for (int j = 0; j < range.from; ++j) mine[j] = kMinusInfinity;
    for (int j = range.to; j < kSoftmaxTile; ++j) mine[j] = kMinusInfinity;
    alpha[r] = tile_softmax(mine, w.partial->m + row + r, w.l + 16 * (row + r));
  }
  float* o = w.o + row * w.padded;
  tile_values<kRows, kAsk>(kv, w.padded, range.from, range.to, scores, alpha, next, o);
}

template <bool kAsk>
int some_rows_of_tile(const Work& w, const FloatTile& kv, int row, int alike, const Range& range,
                      const Next& next) {
  if (alike >= kRowBlock) {
    rows_of_tile<kRowBlock, kAsk>(w, kv, row, range, next);
    return kRowBlock;
  }
  if (alike >= 2) {
    rows_of_tile<2, kAsk>(w, kv, row, range, next);
    return 2;
  }
  rows_of_tile<1, kAsk>(w, kv, row, range, next);
  return 1;
}

// ---- One split --------------------------------------------------------------------------------

/// All rows over one tile whose K and V are available.
void tile_of_rows(const Work& w, const FloatTile& kv, int32_t tile, const Next& next, bool ask) {
  const AttentionSplit& a = w.a;
  for (int row = 0; row < a.num_rows;) {
    const Range range(a, row, tile);
    if (range.from >= range.to) {
      ++row;
      continue;
    }
    int alike = 1;  // neighbours that see the same positions: the heads of one token, or all rows
    while (alike < kRowBlock && row + alike < a.num_rows && Range(a, row + alike, tile) == range) {
      ++alike;
    }
    row += ask ? some_rows_of_tile<true>(w, kv, row, alike, range, next)
               : some_rows_of_tile<false>(w, kv, row, alike, range, next);
    ask = false;
  }
}

void attend_f32(const AttentionSplit& a, AttentionPartial* partial, float* o) {
  const int64_t padded = padded_dims(a.v_dim);
  float* k = a.scratch;
  float* v = k + kSoftmaxTile * a.k_dim;
  float* l = v + kSoftmaxTile * padded;
  const Work w{a, partial, padded, l, o};
  const SeenByRows seen = begin_rows(w);
  for_tiles(a, seen, sizeof(float),
            [&](int32_t tile, const StoredTile& stored, const Next& next) HEARTH_SIMD_LAMBDA {
              for (int sub = 0; sub < kSubTiles; ++sub) {
                if (stored.k[sub] == nullptr) continue;
                float* to_k = k + sub * kSubTile;
                float* to_v = v + sub * kSubTile * padded;
                copy_k(a, stored.k[sub], stored.offset[sub], to_k);
                if (stored.v[sub] != nullptr) {
                  copy_v(a, stored.v[sub], stored.offset[sub], to_v);
                } else {
                  front_of_k(to_k, a.v_dim, padded, to_v);
                }
              }
              tile_of_rows(w, FloatTile{k, v, padded}, tile, next, next.wanted);
            });
  end_rows(w);
}

void merge(float* m, float* l, float* o, float later_m, float later_l, const float* later_o,
           int32_t v_dim) {
  if (later_m == kMinusInfinity) return;
  if (*m == kMinusInfinity) {
    *m = later_m;
    *l = later_l;
    for (int32_t d = 0; d < v_dim; ++d) o[d] = later_o[d];
    return;
  }
  const float new_m = later_m > *m ? later_m : *m;
  const float alpha = exp1(*m - new_m);
  const float beta = exp1(later_m - new_m);
  *m = new_m;
  *l = fma(*l, alpha, later_l * beta);
  for (int32_t d = 0; d < v_dim; ++d) o[d] = fma(o[d], alpha, later_o[d] * beta);
}

void finish(float m, float l, const float* o, const float* sink, int32_t v_dim, float* out) {
  float scale = 1.0f;
  if (sink != nullptr) {
    const float new_m = *sink > m ? *sink : m;
    scale = exp1(m - new_m);
    l = fma(l, scale, exp1(*sink - new_m));
  }
  const float inverse = scale / l;
  for (int32_t d = 0; d < v_dim; ++d) out[d] = o[d] * inverse;
}

}  // namespace

constinit const AttentionKernels HEARTH_OF_SET(kAttention) = {
    attend_f32, &HEARTH_OF_SET(kRoundedAttention), merge, finish};

}  // namespace hearth::kernels
