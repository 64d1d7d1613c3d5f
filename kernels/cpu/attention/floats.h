#pragma once
// Attention over K and V whose products are those of f32: blocks of chains over their sources
// (kernels/cpu/attention/sources.h), and the weights between.

#include "kernels/cpu/attention/sources.h"

namespace hearth::kernels {
namespace {

/// scores[r][j] = scale * q[r] . k[j] (with soft cap) for the positions of a tile.
template <int kRows, bool kAsk, typename Source>
void tile_scores(const AttentionSplit& a, int first_row, const TileData& data, const Next& next,
                 float* scores) {
  constexpr int kVecs = vec_block(kRows);
  const Source k(data);
  const int32_t n = a.k_dim;
  const float* row[kRows];
  for (int r = 0; r < kRows; ++r) row[r] = a.q[first_row + r];
  constexpr int kWalks = kSoftmaxTile / (kVecs * kLanes);
  // Each walk asks for its share of the rows, so that memory is busy throughout.
  const int32_t ask_every = kAsk ? kWalks * next.k_rows_of_line() : 1;
  for (int walk = 0; walk < kWalks; ++walk) {
    const int first_vec = walk * kVecs;
    F acc[kRows][kVecs];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int i = 0; i < kVecs; ++i) acc[r][i] = zero();
    }
    for (int32_t d = 0; d < n; d += Source::kDims) {
      if constexpr (kAsk) {
        if ((d & (ask_every - 1)) == 0) next.ask_k<3>((walk * n + d) / kWalks);
      }
#pragma GCC unroll 4
      for (int e = 0; e < Source::kDims; ++e) {
        F qd[kRows];
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) qd[r] = set1(row[r][d + e]);
#pragma GCC unroll 8
        for (int i = 0; i < kVecs; ++i) {
          const F kd = k.lanes(d, e, first_vec + i);
#pragma GCC unroll 4
          for (int r = 0; r < kRows; ++r) acc[r][i] = fma(qd[r], kd, acc[r][i]);
        }
      }
    }
    float* out = scores + first_vec * kLanes;
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int i = 0; i < kVecs; ++i) {
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
template <int kRows, int kVecs, bool kAsk, typename Source>
HEARTH_SIMD void values_block(const Source& v, int64_t padded, int64_t first, int from, int to,
                              const float* weights, const float* alpha, const Next& next,
                              float* o) {
  F acc[kRows][kVecs];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < kVecs; ++i) {
      acc[r][i] = mul(load(o + r * padded + first + i * kLanes), set1(alpha[r]));
    }
  }
  for (int j = from; j < to; ++j) {
    if constexpr (kAsk) {
      if (j % 2 == 0) next.ask_v<kVecs * kLanes, 3>(j / 2, first);
    }
    F w[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) w[r] = set1(weights[r * kSoftmaxTile + j]);
#pragma GCC unroll 8
    for (int i = 0; i < kVecs; ++i) {
      const F vj = v.template lanes<kVecs>(j, first, i);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) acc[r][i] = fma(w[r], vj, acc[r][i]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < kVecs; ++i) store(o + r * padded + first + i * kLanes, acc[r][i]);
  }
}

template <int kRows, bool kAsk, typename Source>
void tile_values(const TileData& data, int64_t padded, int from, int to, const float* weights,
                 const float* alpha, const Next& next, float* o) {
  const Source v(data);
  in_blocks<vec_block(kRows)>(0, padded, [&]<int kVecs>(int64_t d) HEARTH_SIMD_LAMBDA {
    values_block<kRows, kVecs, kAsk>(v, padded, d, from, to, weights, alpha, next, o);
  });
}

}  // namespace
}  // namespace hearth::kernels
