#pragma once
// Attention over K and V whose products are those of integers: what is rounded, and how
// (kernels/ops/attention_rounding.h), in the vocabulary of kernels/cpu/simd. K is read in place. V
// is read in place for few rows, or widened to 16 bits in scratch memory, once for all rows.

#include "kernels/cpu/attention/sources.h"
#include "kernels/cpu/simd/quantize.h"
#include "kernels/ops/attention_rounding.h"
#include "kernels/ops/kv_rotation.h"

namespace hearth::kernels {
namespace {

constexpr int kPairRows = kSubTile / 2;  // of V, of a sub-tile

// ---- Queries ----------------------------------------------------------------------------------

/// -1 where a lane has the bit of the row: 8, 4, 2, 1.
alignas(64) constexpr float kUpperLanes[4][16] = {
    {1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1},
    {1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1},
    {1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1},
    {1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1}};

/// Makes pairs (a, b) that are kDistance lanes apart (a + b, a - b).
template <int kDistance>
HEARTH_SIMD void add_lanes(F (&x)[2 * kParts]) {
  if constexpr (kDistance < kLanes) {
    constexpr int kRow = kDistance == 8 ? 0 : kDistance == 4 ? 1 : kDistance == 2 ? 2 : 3;
    for (F& each : x) each = fma(each, load(kUpperLanes[kRow]), swapped<kDistance>(each));
  } else {
    constexpr int kApart = kDistance / kLanes;
    for (int i = 0; i < 2 * kParts; ++i) {
      if ((i & kApart) != 0) continue;
      const F a = x[i];
      x[i] = add(a, x[i + kApart]);
      x[i + kApart] = sub(a, x[i + kApart]);
    }
  }
}

/// As rotate_head of kernels/ops/kv_rotation.h.
HEARTH_SIMD void rotate_query(const float* q, float (&out)[kScaleDims]) {
  F x[2 * kParts];
  for (int i = 0; i < 2 * kParts; ++i) x[i] = load(q + i * kLanes);
  add_lanes<16>(x);
  add_lanes<8>(x);
  add_lanes<4>(x);
  add_lanes<2>(x);
  add_lanes<1>(x);
  for (int i = 0; i < 2 * kParts; ++i) store(out + i * kLanes, mul(x[i], set1(kRotatedQuery)));
}

void quantize_query(const float* q, int32_t k_dim, bool rotated, float scale, QueryBlock* out) {
  for (int32_t first = 0; first < k_dim; first += kScaleDims, ++out) {
    const float* x = q + first;
    float values[kScaleDims] = {};
    if (first + kScaleDims > k_dim) {
      for (int32_t d = first; d < k_dim; ++d) values[d - first] = q[d];
      x = values;
    } else if (rotated) {
      rotate_query(x, values);
      x = values;
    }
    int32_t sums[2];
    out->scale = quantize_block(x, sums, out->codes) * scale;
    out->start = -128 * (sums[0] + sums[1]);
  }
}

// ---- Scores -----------------------------------------------------------------------------------
// Sources of K: lanes(row, e, vec), e below kFours: 4 codes of each of kLanes positions, the vec-th
// such vector, with kOffset added; a row has 4 kFours dimensions.

struct ByteKeys {
  static constexpr int kFours = 1;
  static constexpr int kOffset = kKvKeyBias;
  static constexpr bool kWide = true;
  const TileData& t;
  explicit HEARTH_SIMD ByteKeys(const TileData& tile) : t(tile) {}

  HEARTH_SIMD B lanes(int32_t row, int, int vec) const { return key_bytes(t, row, vec); }
};
struct NibbleKeys {
  static constexpr int kFours = 2;
  static constexpr int kOffset = 8;
  static constexpr bool kWide = false;
  const TileData& t;
  explicit HEARTH_SIMD NibbleKeys(const TileData& tile) : t(tile) {}

  HEARTH_SIMD B lanes(int32_t row, int e, int vec) const {
    const B pairs = key_bytes(t, row, vec);
    return and_bytes(e == 0 ? pairs : shift_bytes<4>(pairs), 15);
  }
};

/// scores[r][j] = scale * q[r] . k[j] (with soft cap) for the positions of a tile.
template <int kRows, bool kAsk, typename Source>
void integer_scores(const AttentionSplit& a, int row, const TileData& data, const Next& next,
                    float* scores) {
  constexpr int kRowsOfBlock = kScaleDims / (4 * Source::kFours);
  constexpr int kDims = 4 * Source::kFours;
  const Source k(data);
  const int32_t blocks = num_scales(a.k_dim);
  for (int32_t b = 0; b < blocks; ++b) {
    const int32_t left = a.k_dim - b * kScaleDims;
    const int32_t rows = left < kScaleDims ? (left + kDims - 1) / kDims : kRowsOfBlock;
    const QueryBlock* const* q = a.codes + row;
    for (int first_vec = 0; first_vec < kSoftmaxTile / kLanes; first_vec += kVecBlock) {
      Sum sum[kRows][kVecBlock];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const Sum start = dot_start<Source::kOffset, Source::kWide>(q[r][b].start);
#pragma GCC unroll 4
        for (int i = 0; i < kVecBlock; ++i) sum[r][i] = start;
      }
#pragma GCC unroll 8
      for (int i_row = 0; i_row < kRowsOfBlock; ++i_row) {
        if (i_row >= rows) break;
        if constexpr (kAsk) next.ask_k<0>(b * kRowsOfBlock + i_row);
#pragma GCC unroll 2
        for (int e = 0; e < Source::kFours; ++e) {
          decltype(dot_operand<Source::kWide>(B{})) kd[kVecBlock];
#pragma GCC unroll 4
          for (int i = 0; i < kVecBlock; ++i) {
            kd[i] = dot_operand<Source::kWide>(k.lanes(b * kRowsOfBlock + i_row, e, first_vec + i));
          }
#pragma GCC unroll 4
          for (int r = 0; r < kRows; ++r) {
            const Four four = load_four(q[r][b].codes, i_row * Source::kFours + e);
#pragma GCC unroll 4
            for (int i = 0; i < kVecBlock; ++i) sum[r][i] = dot4(sum[r][i], kd[i], four);
          }
        }
      }
      const float* scales = data.k_scales + b * kSoftmaxTile + first_vec * kLanes;
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const F of_row = set1(q[r][b].scale);
        float* out = scores + r * kSoftmaxTile + first_vec * kLanes;
#pragma GCC unroll 4
        for (int i = 0; i < kVecBlock; ++i) {
          const F before = b == 0 ? zero() : load(out + i * kLanes);
          const F scale = mul(load(scales + i * kLanes), of_row);
          store(out + i * kLanes, fma(to_float(sum[r][i]), scale, before));
        }
      }
    }
  }
  if (a.soft_cap > 0) cap_scores(scores, kRows * kSoftmaxTile, a.soft_cap);
}

// ---- Weights ----------------------------------------------------------------------------------

/// Multipliers of a tile's positions, for those in [from, to), and the unit of their products, per
/// 32 dimensions.
void find_multipliers(int32_t v_dim, const TileData& data, int from, int to) {
  const Multipliers& out = data.multipliers;
  for (int32_t s = 0; s < num_scales(v_dim); ++s) {
    alignas(64) float scales[kSoftmaxTile];
    __builtin_memcpy(scales, data.v_scales + s * kSoftmaxTile, sizeof scales);
    for (int j = 0; j < from; ++j) scales[j] = 0.0f;
    for (int j = to; j < kSoftmaxTile; ++j) scales[j] = 0.0f;
    I largest[kParts];
    for (int p = 0; p < kParts; ++p) largest[p] = magnitude(load(scales + p * kLanes));
    for (int j = 16; j < kSoftmaxTile; j += 16) {
      for (int p = 0; p < kParts; ++p) {
        largest[p] = max_ints(largest[p], magnitude(load(scales + j + p * kLanes)));
      }
    }
    const int32_t bits = max16(largest);  // orders like the magnitude, with NaN above infinity
    float most;
    __builtin_memcpy(&most, &bits, sizeof most);
    const bool finite = most <= 3.40282347e38f;
    out.units[s] = finite ? most * kScaleUnit : __builtin_nanf("");
    const F steps = set1(finite && most > 0 ? kWeightSteps / most : 0.0f);
    const auto multiplier = [&](int j) { return rounded(mul(load(scales + j), steps)); };
    for (int j = 0; j < kSoftmaxTile; j += 2 * kLanes) {
      store_halves(out.of + s * kSoftmaxTile + j,
                   low_halves(multiplier(j), multiplier(j + kLanes)));
    }
  }
}

/// Weights of rows over a tile, per 32 dimensions of V.
struct RowWeights {
  int16_t* of;     ///< (rows, num_scales(v_dim), kSoftmaxTile): times multipliers
  float* factors;  ///< (rows, num_scales(v_dim)): of the sums
  float* alpha;    ///< (rows): of o
};

/// The largest of a row's scores.
HEARTH_SIMD float largest_score(const float* scores) {
  F largest[kParts];
  for (int p = 0; p < kParts; ++p) largest[p] = load(scores + p * kLanes);
  for (int i = 16; i < kSoftmaxTile; i += 16) {
    for (int p = 0; p < kParts; ++p) {
      largest[p] = max(largest[p], load(scores + i + p * kLanes));
    }
  }
  return max16(largest);
}

constexpr int kHalvesOfTile = kSoftmaxTile / (2 * kLanes);

/// The weights of a row's scores in steps, and their sum in 16 lanes.
HEARTH_SIMD void weight_steps(const float* scores, float largest, Halves (&steps)[kHalvesOfTile],
                              F (&sum)[kParts]) {
  const F shift = set1(12582912.0f);  // 1.5 * 2^23: its low bits are the integer that is added
#pragma GCC unroll 8
  for (int i = 0; i < kHalvesOfTile; ++i) {
    I bits[2];
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const int vec = 2 * i + h;
      const F w = exp_coarse(sub(load(scores + vec * kLanes), set1(largest)));
      const F shifted = fma(w, set1(kWeightSteps), shift);
      bits[h] = bits_of(shifted);
      const F integer = sub(shifted, shift);  // NaN stays
      sum[vec % kParts] = vec < kParts ? integer : add(sum[vec % kParts], integer);
    }
    steps[i] = low_halves(bits[0], bits[1]);
  }
}

/// Turns scores of a tile into weights, and adds these to the 16 lanes of each row's l.
template <int kRows>
void integer_softmax(const float* scores, const Multipliers& multipliers, int32_t num, float* m,
                     float* l, const RowWeights& out) {
  float largest[kRows];
  float beta[kRows];
  // All rows, so that a row's exponentials need not wait for its maximum.
  for (int r = 0; r < kRows; ++r) largest[r] = largest_score(scores + r * kSoftmaxTile);
  for (int r = 0; r < kRows; ++r) {
    const float before = m[r];
    m[r] = largest[r] > before ? largest[r] : before;
    out.alpha[r] = m[r] == before ? 1.0f : exp1(before - m[r]);
    beta[r] = (m[r] == largest[r] ? 1.0f : exp1(largest[r] - m[r])) * (1.0f / kWeightSteps);
  }
  for (int r = 0; r < kRows; ++r) {
    Halves steps[kHalvesOfTile];
    F sum[kParts];
    weight_steps(scores + r * kSoftmaxTile, largest[r], steps, sum);
    for (int p = 0; p < kParts; ++p) {
      float* lanes = l + r * 16 + p * kLanes;
      store(lanes, fma(sum[p], set1(beta[r]), mul(load(lanes), set1(out.alpha[r]))));
    }
    for (int32_t s = 0; s < num; ++s) {
      const int32_t row = r * num + s;
      out.factors[row] = beta[r] * multipliers.units[s];
#pragma GCC unroll 8
      for (int i = 0; i < kHalvesOfTile; ++i) {
        const int at = i * 2 * kLanes;
        store_halves(out.of + row * kSoftmaxTile + at,
                     multiply(steps[i], load_halves(multipliers.of + s * kSoftmaxTile + at)));
      }
    }
  }
}

// ---- Values -----------------------------------------------------------------------------------
// Sources of V: lanes<kVecs>(pair, first, i): of positions 2 pair and 2 pair + 1 the i-th of kVecs
// vectors of dimensions that start with `first`, a multiple of them all.

struct ScratchPairs {
  const int16_t* v;
  int64_t padded;
  explicit HEARTH_SIMD ScratchPairs(const TileData& t) : v(t.v_pairs), padded(t.padded) {}

  template <int kVecs>
  HEARTH_SIMD Pairs lanes(int pair, int64_t first, int i) const {
    return load_pairs(v + (pair * padded + first + i * kLanes) * 2);
  }
};
struct BytePairs {
  const TileData& t;
  explicit HEARTH_SIMD BytePairs(const TileData& tile) : t(tile) {}

  template <int kVecs>
  HEARTH_SIMD Pairs lanes(int pair, int64_t first, int i) const {
    const auto* row = reinterpret_cast<const int8_t*>(t.v_in_place[pair / kPairRows]);
    return load_pairs_i8(row + (int64_t{pair % kPairRows} * t.v_dim + first + i * kLanes) * 2);
  }
};
struct NibblePairs {
  const TileData& t;
  int64_t row_bytes;
  explicit HEARTH_SIMD NibblePairs(const TileData& tile)
      : t(tile), row_bytes(int64_t{kScaleDims} * num_scales(tile.v_dim)) {}

  template <int kVecs>
  HEARTH_SIMD Pairs lanes(int pair, int64_t first, int i) const {
    const int64_t d = first + i * kLanes;
    const auto* row = reinterpret_cast<const uint8_t*>(t.v_in_place[pair / kPairRows]);
    const uint8_t* codes =
        row + pair % kPairRows * row_bytes + d / kScaleDims * kScaleDims + d % kPairBytes * 2;
    // Known at compile time if `first` is a multiple of 32.
    const bool upper =
        kVecs * kLanes % kScaleDims == 0 ? (i * kLanes & kPairBytes) != 0 : (d & kPairBytes) != 0;
    return upper ? load_high_pairs(codes) : load_low_pairs(codes);
  }
};

/// Widens V of 16 positions: rows of (8, padded, 2).
template <typename Source>
void widen_values(const TileData& data, int sub) {
  const Source v(data);
  for (int pair = sub * kPairRows; pair < (sub + 1) * kPairRows; ++pair) {
    for (int64_t d = 0; d < data.padded; d += kLanes) {
      store_pairs(data.v_pairs + (pair * data.padded + d) * 2, v.template lanes<1>(pair, d, 0));
    }
  }
}

/// o[r] = o[r] * alpha[r] + factors[r] * (sum over positions 2 from .. 2 to - 1 of weights[r][j] *
/// v[j]), for kVecs vectors of each o.
template <int kRows, int kVecs, bool kAsk, typename Source>
HEARTH_SIMD void integer_values_block(const Source& v, int64_t padded, int32_t scales,
                                      int64_t first, int from, int to, const RowWeights& weights,
                                      const Next& next, float* o) {
  I sum[kRows][kVecs];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < kVecs; ++i) sum[r][i] = no_sum();
  }
  const int64_t block = first / kScaleDims;
  const int16_t* of_block = weights.of + block * kSoftmaxTile;
  for (int pair = from; pair < to; ++pair) {
    Pairs vj[kVecs];
#pragma GCC unroll 4
    for (int i = 0; i < kVecs; ++i) vj[i] = v.template lanes<kVecs>(pair, first, i);
    if constexpr (kAsk) next.ask_pairs(pair, first);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int i = 0; i < kVecs; ++i) {
        const int32_t row = r * scales + i * kLanes / kScaleDims;
        sum[r][i] = dot2(sum[r][i], vj[i], load_pair(of_block + row * kSoftmaxTile + 2 * pair));
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < kVecs; ++i) {
      float* out = o + r * padded + first + i * kLanes;
      const F factor = set1(weights.factors[r * scales + block + i * kLanes / kScaleDims]);
      store(out, fma(to_float(sum[r][i]), factor, mul(load(out), set1(weights.alpha[r]))));
    }
  }
}

template <int kRows, bool kAsk, typename Source>
void integer_values(const TileData& data, int from, int to, const RowWeights& weights,
                    const Next& next, float* o) {
  const Source v(data);
  const int32_t scales = num_scales(data.v_dim);
  const int64_t padded = data.padded;
  from /= 2;
  to = (to + 1) / 2;
  int64_t d = 0;
  for (; d + kVecBlock * kLanes <= padded; d += kVecBlock * kLanes) {
    integer_values_block<kRows, kVecBlock, kAsk>(v, padded, scales, d, from, to, weights, next, o);
  }
  for (; d < padded; d += kLanes) {
    integer_values_block<kRows, 1, kAsk>(v, padded, scales, d, from, to, weights, next, o);
  }
}

}  // namespace
}  // namespace hearth::kernels
