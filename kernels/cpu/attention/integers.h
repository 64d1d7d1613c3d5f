#pragma once
// Attention over K and V whose products are those of integers: what is rounded, and how
// (kernels/ops/attention_rounding.h), in the vocabulary of kernels/cpu/simd. K is read in place. V
// is read in place too, or widened to 16 bits in scratch memory, once for all rows.

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

/// Rows of words, 4 bytes of each of 16 positions, of the sub-tiles.
struct KeyWords {
  const uint8_t* k[kSubTiles];
  int64_t row_bytes;
  explicit HEARTH_SIMD KeyWords(const TileData& t) : row_bytes(int64_t{t.block_size} * 4) {
    for (int sub = 0; sub < kSubTiles; ++sub) {
      k[sub] = reinterpret_cast<const uint8_t*>(t.k_in_place[sub]);
    }
  }
  HEARTH_SIMD B bytes(int32_t row, int vec) const {
    return load_raw(k[vec / kParts] + row * row_bytes + vec % kParts * kLanes * 4);
  }
};
struct ByteKeys : KeyWords {
  static constexpr int kFours = 1;
  static constexpr int kOffset = kKvKeyBias;
  static constexpr bool kWide = true;
  using KeyWords::KeyWords;

  HEARTH_SIMD B lanes(int32_t row, int, int vec) const { return bytes(row, vec); }
};
struct NibbleKeys : KeyWords {
  static constexpr int kFours = 2;
  static constexpr int kOffset = 8;
  static constexpr bool kWide = false;
  using KeyWords::KeyWords;

  HEARTH_SIMD B lanes(int32_t row, int e, int vec) const {
    const B pairs = bytes(row, vec);
    return and_bytes(e == 0 ? pairs : shift_bytes<4>(pairs), 15);
  }
};

/// sum[r][i] += key(i) . four(r). What there is less of stays in registers.
template <int kRows, int kVecs, typename Key, typename FourOf>
HEARTH_SIMD void add_dots(Sum (&sum)[kRows][kVecs], const Key& key, const FourOf& four_of) {
  if constexpr (kRows < kVecs) {
    Four four[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) four[r] = four_of(r);
#pragma GCC unroll 8
    for (int i = 0; i < kVecs; ++i) {
      const auto k = key(i);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sum[r][i] = dot4(sum[r][i], k, four[r]);
    }
  } else {
    decltype(key(0)) k[kVecs];
#pragma GCC unroll 8
    for (int i = 0; i < kVecs; ++i) k[i] = key(i);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const Four four = four_of(r);
#pragma GCC unroll 8
      for (int i = 0; i < kVecs; ++i) sum[r][i] = dot4(sum[r][i], k[i], four);
    }
  }
}

/// scores[r][j] = scale * q[r] . k[j] (with soft cap) for the positions of a tile.
template <int kRows, bool kAsk, typename Source>
void integer_scores(const AttentionSplit& a, int row, const TileData& data, const Next& next,
                    float* scores) {
  constexpr int kRowsOfBlock = kScaleDims / (4 * Source::kFours);
  constexpr int kDims = 4 * Source::kFours;
  constexpr int kVecs = vec_block(kRows);
  const Source k(data);
  const int32_t blocks = num_scales(a.k_dim);
  for (int32_t b = 0; b < blocks; ++b) {
    const int32_t left = a.k_dim - b * kScaleDims;
    const int32_t rows = left < kScaleDims ? (left + kDims - 1) / kDims : kRowsOfBlock;
    const QueryBlock* const* q = a.codes + row;
    for (int first_vec = 0; first_vec < kSoftmaxTile / kLanes; first_vec += kVecs) {
      Sum sum[kRows][kVecs];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const Sum start = dot_start<Source::kOffset, Source::kWide>(q[r][b].start);
#pragma GCC unroll 8
        for (int i = 0; i < kVecs; ++i) sum[r][i] = start;
      }
#pragma GCC unroll 8
      for (int i_row = 0; i_row < kRowsOfBlock; ++i_row) {
        if (i_row >= rows) break;
        if constexpr (kAsk) {
          if (first_vec == 0) next.ask_half_k(b * kRowsOfBlock + i_row);
        }
#pragma GCC unroll 2
        for (int e = 0; e < Source::kFours; ++e) {
          add_dots(
              sum,
              [&](int i) {
                return dot_operand<Source::kWide>(
                    k.lanes(b * kRowsOfBlock + i_row, e, first_vec + i));
              },
              [&](int r) { return load_four(q[r][b].codes, i_row * Source::kFours + e); });
        }
      }
      const float* scales = data.k_scales + b * kSoftmaxTile + first_vec * kLanes;
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const F of_row = set1(q[r][b].scale);
        float* out = scores + r * kSoftmaxTile + first_vec * kLanes;
#pragma GCC unroll 8
        for (int i = 0; i < kVecs; ++i) {
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

/// Multipliers of a tile's positions from their scales, and the unit of their products.
HEARTH_SIMD void find_multipliers(const float* scales, int16_t* out, float* unit) {
  I largest[kParts];
  for (int p = 0; p < kParts; ++p) largest[p] = magnitude(load(scales + p * kLanes));
#pragma GCC unroll 4
  for (int j = 16; j < kSoftmaxTile; j += 16) {
    for (int p = 0; p < kParts; ++p) {
      largest[p] = max_ints(largest[p], magnitude(load(scales + j + p * kLanes)));
    }
  }
  const int32_t bits = max16(largest);  // orders like the magnitude, with NaN above infinity
  float most;
  __builtin_memcpy(&most, &bits, sizeof most);
  const bool finite = most <= 3.40282347e38f;
  *unit = finite ? most * kScaleUnit : __builtin_nanf("");
  const F steps = set1(finite && most > 0 ? kWeightSteps / most : 0.0f);
  const auto multiplier = [&](int j) { return rounded(mul(load(scales + j), steps)); };
#pragma GCC unroll 4
  for (int j = 0; j < kSoftmaxTile; j += 2 * kLanes) {
    store_halves(out + j, low_halves(multiplier(j), multiplier(j + kLanes)));
  }
}

/// Those of a tile, per 32 dimensions. Positions outside [from, to) have the scale 0.
void find_all_multipliers(int32_t v_dim, const TileData& data, int from, int to) {
  for (int32_t s = 0; s < num_scales(v_dim); ++s) {
    float* scales = data.v_scales + s * kSoftmaxTile;
    int16_t* out = data.multipliers.of + s * kSoftmaxTile;
    float* unit = data.multipliers.units + s;
    if (from == 0 && to == kSoftmaxTile) {
      find_multipliers(scales, out, unit);
      continue;
    }
    alignas(64) float seen[kSoftmaxTile] = {};
    for (int j = from; j < to; ++j) seen[j] = scales[j];
    find_multipliers(seen, out, unit);
  }
}

/// Weights of rows over a tile, per 32 dimensions of V.
struct RowWeights {
  int16_t* of;     ///< (num_scales(v_dim), rows, kSoftmaxTile): times multipliers
  float* factors;  ///< (num_scales(v_dim), rows): of the sums
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

/// Turns scores of a tile into weights, and adds these to the 16 lanes of each row's l. `ask`: what
/// is prefetched meanwhile, or null.
template <int kRows>
void integer_softmax(const float* scores, const Multipliers& multipliers, int32_t num, float* m,
                     float* l, const RowWeights& out, const Next* ask) {
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
    if (ask != nullptr) ask->ask_other_k<kRows>(r);
    for (int p = 0; p < kParts; ++p) {
      float* lanes = l + r * 16 + p * kLanes;
      store(lanes, fma(sum[p], set1(beta[r]), mul(load(lanes), set1(out.alpha[r]))));
    }
    for (int32_t s = 0; s < num; ++s) {
      const int32_t row = s * kRows + r;
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
// Sources of V: rows(sub, first): the pairs of positions of a sub-tile, from dimension `first` on;
// of these lanes<kVecs>(pair, i): the i-th of kVecs vectors; `first` is a multiple of them all.

struct ScratchPairs {
  const int16_t* v;
  int64_t stride;
  explicit HEARTH_SIMD ScratchPairs(const TileData& t) : v(t.v_pairs), stride(2 * t.padded) {}

  struct Rows {
    const int16_t* v;
    int64_t stride;
    template <int kVecs>
    HEARTH_SIMD Pairs lanes(int pair, int i) const {
      return load_pairs(v + pair * stride + 2 * i * kLanes);
    }
  };
  HEARTH_SIMD Rows rows(int sub, int64_t first) const {
    return {v + sub * kPairRows * stride + 2 * first, stride};
  }
};
struct BytePairs {
  const TileData& t;
  explicit HEARTH_SIMD BytePairs(const TileData& tile) : t(tile) {}

  struct Rows {
    const int8_t* v;
    int64_t stride;
    template <int kVecs>
    HEARTH_SIMD Pairs lanes(int pair, int i) const {
      return load_pairs_i8(v + pair * stride + 2 * i * kLanes);
    }
  };
  HEARTH_SIMD Rows rows(int sub, int64_t first) const {
    return {reinterpret_cast<const int8_t*>(t.v_in_place[sub]) + 2 * first, int64_t{2} * t.v_dim};
  }
};
struct NibblePairs {
  const TileData& t;
  explicit HEARTH_SIMD NibblePairs(const TileData& tile) : t(tile) {}

  struct Rows {
    const uint8_t* v;  ///< of the 32 dimensions with the first
    int64_t stride;
    bool upper;  ///< the first is in the upper bits
    template <int kVecs>
    HEARTH_SIMD Pairs lanes(int pair, int i) const {
      const int d = i * kLanes;
      const uint8_t* codes = v + pair * stride + d / kScaleDims * kScaleDims + d % kPairBytes * 2;
      // Known at compile time if the first is a multiple of 32.
      const bool high = kVecs * kLanes % kScaleDims == 0 ? (d & kPairBytes) != 0
                                                         : upper != ((d & kPairBytes) != 0);
      return high ? load_high_pairs(codes) : load_low_pairs(codes);
    }
  };
  HEARTH_SIMD Rows rows(int sub, int64_t first) const {
    const auto* v = reinterpret_cast<const uint8_t*>(t.v_in_place[sub]);
    return {v + first / kScaleDims * kScaleDims + first % kPairBytes * 2,
            int64_t{kScaleDims} * num_scales(t.v_dim), (first & kPairBytes) != 0};
  }
};

/// Widens V of 16 positions: rows of (8, padded, 2).
template <typename Source>
void widen_values(const TileData& data, int sub) {
  const Source v(data);
  for (int64_t d = 0; d < data.padded; d += kLanes) {
    const auto rows = v.rows(sub, d);
    int16_t* out = data.v_pairs + (sub * kPairRows * data.padded + d) * 2;
    for (int pair = 0; pair < kPairRows; ++pair, out += 2 * data.padded) {
      store_pairs(out, rows.template lanes<1>(pair, 0));
    }
  }
}

/// o[r] = o[r] * alpha[r] + factors[r] * (sum over positions 2 from .. 2 to - 1 of weights[r][j] *
/// v[j]), for kVecs vectors of each o.
template <int kRows, int kVecs, bool kAsk, typename Source>
HEARTH_SIMD void integer_values_block(const Source& v, int64_t padded, int64_t first, int from,
                                      int to, const RowWeights& weights, const Next& next,
                                      float* o) {
  I sum[kRows][kVecs];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < kVecs; ++i) sum[r][i] = no_sum();
  }
  const int64_t block = first / kScaleDims;
  const int16_t* of_block = weights.of + block * kRows * kSoftmaxTile;
  for (int sub = from / kPairRows; sub * kPairRows < to; ++sub) {
    const auto rows = v.rows(sub, first);
    const int base = sub * kPairRows;
    const int begin = from > base ? from - base : 0;
    const int end = to < base + kPairRows ? to - base : kPairRows;
    for (int pair = begin; pair < end; ++pair) {
      if constexpr (kAsk) {
        next.ask_v<kVecs * kLanes, 2>(base + pair, first);
      }
      const int16_t* of_pair = of_block + 2 * (base + pair);
#pragma GCC unroll 8
      for (int i = 0; i < kVecs; ++i) {
        const Pairs vj = rows.template lanes<kVecs>(pair, i);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          const int row = i * kLanes / kScaleDims * kRows + r;
          sum[r][i] = dot2(sum[r][i], vj, load_pair(of_pair + row * kSoftmaxTile));
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < kVecs; ++i) {
      float* out = o + r * padded + first + i * kLanes;
      const F factor = set1(weights.factors[(block + i * kLanes / kScaleDims) * kRows + r]);
      store(out, fma(to_float(sum[r][i]), factor, mul(load(out), set1(weights.alpha[r]))));
    }
  }
}

template <int kRows, bool kAsk, typename Source>
void integer_values(const TileData& data, int from, int to, const RowWeights& weights,
                    const Next& next, float* o) {
  const Source v(data);
  in_blocks<vec_block(kRows)>(0, data.padded, [&]<int kVecs>(int64_t d) HEARTH_SIMD_LAMBDA {
    integer_values_block<kRows, kVecs, kAsk>(v, data.padded, d, from / 2, (to + 1) / 2, weights,
                                             next, o);
  });
}

}  // namespace
}  // namespace hearth::kernels
