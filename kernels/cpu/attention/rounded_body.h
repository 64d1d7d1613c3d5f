#pragma once
// Attention over KV of f16, bf16 and q8_0 with products of 16-bit integers (rounding:
// kernels/ops/attention_rounding.h), written once against the vocabulary of kernels/cpu/simd,
// compiled per instruction set.
//
// K and V of a tile are rounded into scratch memory once for all rows, as pairs of integers: of two
// dimensions of one position in K, of one dimension of two positions in V. Scores of a tile are in
// units of log2 and contain the step of the position's V, so that weights multiply integers. Sums
// of products are exact; all else of a row is one chain over tiles, so a row's bits depend only on
// its own q, its positions and their K and V. Weights of positions that a row does not see are
// zero: unused slots may hold anything, even NaN.

#include "kernels/cpu/attention/stored_body.h"

namespace hearth::kernels {
namespace {

constexpr int kRowsAtOnce = 4;
// Vectors of sums per row: 16 sums of 32 registers, or 8 of 16.
constexpr int kPairVecs = kRegisters == 32 && sizeof(PairSum) == sizeof(F) ? 4 : 2;
constexpr int kTilePairs = kSoftmaxTile / 2;
constexpr int kChunkPairs = kRoundedDims / 2;
constexpr float kLog2E = 1.44269504f;
constexpr float kLn2 = 0.693147181f;
constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, half to even

// ---- Rounding ---------------------------------------------------------------------------------

/// A tile's K and V and all rows' q, rounded.
struct RoundedTile {
  int32_t pairs;     ///< of dimensions of K and q
  int64_t q_stride;  ///< pairs, padded
  int64_t padded;    ///< v_dim
  int32_t* k;        ///< (pairs, kSoftmaxTile)
  float* k_step;     ///< (chunks, kSoftmaxTile)
  int32_t* v;        ///< (kTilePairs, padded)
  float* v_log2;     ///< (kSoftmaxTile): log2 of the step
  float* v_inverse;  ///< (kSoftmaxTile): 1 / step
  int32_t* q;        ///< (rows, q_stride)
  float* q_factor;   ///< (rows): what turns a sum of steps of q times K into a score

  explicit RoundedTile(const AttentionSplit& a)
      : pairs((a.k_dim + 1) / 2), q_stride(padded_dims(pairs)), padded(padded_dims(a.v_dim)) {
    const int32_t chunks = (a.k_dim + kRoundedDims - 1) / kRoundedDims;
    k = reinterpret_cast<int32_t*>(a.scratch);
    v = k + int64_t{pairs} * kSoftmaxTile;
    q = v + kTilePairs * padded;
    k_step = reinterpret_cast<float*>(q + kMaxAttentionRows * q_stride);
    v_log2 = k_step + int64_t{chunks} * kSoftmaxTile;
    v_inverse = v_log2 + kSoftmaxTile;
    q_factor = v_inverse + kSoftmaxTile;
    // Positions that no row sees have weight 0, times whatever these are.
    for (int i = 0; i < kSoftmaxTile; ++i) v_log2[i] = v_inverse[i] = 0.0f;
  }
  float* rest() const { return q_factor + kMaxAttentionRows; }
};

constexpr float float_of(int32_t bits) { return __builtin_bit_cast(float, bits); }

/// 1.5 * 2^23 times the step of each position: adding it to a value leaves the value over the step,
/// rounded, in the low 16 bits.
void magic_of(const int32_t* bounds, float* magic) {
  for (int i = 0; i < kSoftmaxTile; ++i) {
    magic[i] = float_of(step_bits(bounds[i]) + (23 << 23) + 0x400000);
  }
}

constexpr int32_t kNaNBits = 0x7fc00000;

template <typename Kv>
HEARTH_SIMD void k_bounds(const AttentionSplit& a, const StoredTile& stored, int32_t begin,
                          int32_t end, int32_t* bounds) {
  for (int sub = 0; sub < kSubTiles; ++sub) {
    if (stored.k[sub] == nullptr) continue;
    const typename Kv::K k(a, stored.k[sub], stored.offset[sub]);
    k.bounds(begin, end, bounds + sub * kSubTile);
  }
}

/// Steps of one chunk of K from its bounds; and what rounds to them.
void use_k_bounds(const int32_t* bounds, float* magic, float* step) {
  magic_of(bounds, magic);
  for (int i = 0; i < kSoftmaxTile; ++i) {
    step[i] = float_of(bounds[i] < kBoundLimit ? step_bits(bounds[i]) : kNaNBits);
  }
}

template <typename Kv>
void round_k(const AttentionSplit& a, const StoredTile& stored, const Next& next,
             const RoundedTile& out) {
  alignas(64) int32_t bounds[kSoftmaxTile] = {};
  alignas(64) float magic[kSoftmaxTile];
  for (int32_t first = 0; first < a.k_dim; first += kRoundedDims) {
    const int32_t end = first + kRoundedDims < a.k_dim ? first + kRoundedDims : a.k_dim;
    k_bounds<Kv>(a, stored, first, end, bounds);
    use_k_bounds(bounds, magic, out.k_step + first / kRoundedDims * kSoftmaxTile);
    for (int lane = 0; lane < kSoftmaxTile; lane += kLanes) {
      const int sub = lane / kSubTile;
      if (stored.k[sub] == nullptr) continue;
      const bool ask = next.wanted && lane % kSubTile == 0;
      typename Kv::K k(a, stored.k[sub], stored.offset[sub]);
      const F add_magic = load(magic + lane);
      int32_t* to = out.k + int64_t{first} / 2 * kSoftmaxTile + lane;
      for (int32_t start = first; start < end; start += 32) {
        k.start(lane % kSubTile / kLanes, start);
        const int32_t stop = start + 32 < end ? start + 32 : end;
        for (int32_t d = start; d < stop; d += 2, to += kSoftmaxTile) {
          const F odd = d + 1 < stop ? add(k.value(d + 1), add_magic) : add_magic;
          store_ints(to, pair_low16(add(k.value(d), add_magic), odd));
          // Half of the lines here, the others while V is rounded; but all if V lies in K.
          if (ask && (d % 4 == 0 || a.v == nullptr)) next.ask_pair(sub, d / 2);
        }
      }
    }
  }
}

/// What scores and sums of weights need of V's steps.
void use_v_bounds(const int32_t* bounds, float* magic, const RoundedTile& out) {
  magic_of(bounds, magic);
  for (int i = 0; i < kSoftmaxTile; ++i) {
    const int32_t step = step_bits(bounds[i]);
    const auto log2 = static_cast<float>((step >> 23) - 127);
    out.v_log2[i] = bounds[i] < kBoundLimit ? log2 : float_of(kNaNBits);
    out.v_inverse[i] = float_of((254 << 23) - step);
  }
}

template <typename Kv>
void round_v(const AttentionSplit& a, const StoredTile& stored, const Next& next,
             const RoundedTile& out, float* scales) {
  alignas(64) int32_t bounds[kSoftmaxTile] = {};
  alignas(64) float magic[kSoftmaxTile];
  for (int sub = 0; sub < kSubTiles; ++sub) {
    if (stored.v[sub] == nullptr) continue;
    const typename Kv::V v(a, stored.v[sub], stored.offset[sub], scales);
    v.bounds(bounds + sub * kSubTile);
  }
  use_v_bounds(bounds, magic, out);
  for (int sub = 0; sub < kSubTiles; ++sub) {
    if (stored.v[sub] == nullptr) continue;
    const typename Kv::V v(a, stored.v[sub], stored.offset[sub], scales);
    for (int j = 0; j < kSubTile; j += 2) {
      const int position = sub * kSubTile + j;
      const F even = set1(magic[position]);
      const F odd = set1(magic[position + 1]);
      int32_t* to = out.v + position / 2 * out.padded;
      int32_t d = 0;
      for (; d + kLanes <= a.v_dim; d += kLanes) {
        store_ints(to + d, pair_low16(add(v.value(j, d), even), add(v.value(j + 1, d), odd)));
      }
      for (; d < out.padded; d += kLanes) {
        const F first = d < a.v_dim ? add(v.last(j, d), even) : even;
        const F second = d < a.v_dim ? add(v.last(j + 1, d), odd) : odd;
        store_ints(to + d, pair_low16(first, second));
      }
      if (next.wanted) {
        const int32_t each = (out.pairs + 15) / 16;
        for (int32_t i = position / 2 * each; i < (position / 2 + 1) * each; ++i) {
          const int32_t pair = i / kSubTiles * 2 + 1;
          if (pair < out.pairs) next.ask_pair(i % kSubTiles, pair);
        }
      }
    }
  }
}

/// V that is the front of K: K's dimensions become V's, and neighbouring positions its pairs.
template <typename Kv>
void round_v_in_k(const AttentionSplit& a, const StoredTile& stored, const RoundedTile& out) {
  alignas(64) int32_t bounds[kSoftmaxTile] = {};
  alignas(64) float magic[kSoftmaxTile];
  alignas(64) int32_t rows[kLanes * kTilePairs] = {};  // (kLanes dimensions, kTilePairs)
  k_bounds<Kv>(a, stored, 0, a.v_dim, bounds);
  use_v_bounds(bounds, magic, out);
  for (int32_t first = 0; first < out.padded; first += kLanes) {
    for (int lane = 0; lane < kSoftmaxTile; lane += kLanes) {
      const int sub = lane / kSubTile;
      if (stored.k[sub] == nullptr) continue;
      typename Kv::K k(a, stored.k[sub], stored.offset[sub]);
      const F add_magic = load(magic + lane);
      // kLanes divides 32, and past the last dimension nothing is read.
      if (first < a.v_dim) k.start(lane % kSubTile / kLanes, first);
      auto* to = reinterpret_cast<uint16_t*>(rows) + lane;
      for (int i = 0; i < kLanes; ++i, to += kSoftmaxTile) {
        const bool there = first + i < a.v_dim;
        store_low16(to, there ? add(k.value(first + i), add_magic) : add_magic);
      }
    }
    for (int pair = 0; pair < kTilePairs; pair += kLanes) {
      transpose(rows + pair, kTilePairs, out.v + pair * out.padded + first, out.padded);
    }
  }
}

/// Rounds q of all rows. With a soft cap, scores stay in natural units until they are capped.
void round_q(const AttentionSplit& a, const RoundedTile& out) {
  const float unit = a.soft_cap > 0 ? a.scale : a.scale * kLog2E;
  for (int r = 0; r < a.num_rows; ++r) {
    const float* q = a.q[r];
    I most[kParts];
    for (int p = 0; p < kParts; ++p) most[p] = magnitude(zero());
    const auto lanes_at = [&](int32_t d) HEARTH_SIMD_LAMBDA {
      return d + kLanes <= a.k_dim ? load(q + d) : load_partial(q + d, a.k_dim - d);
    };
    for (int32_t d = 0; d < a.k_dim; d += kLanes) {
      most[0] = max_ints(most[0], magnitude(lanes_at(d)));
    }
    const float largest = float_of(max16(most));
    const bool usable = largest >= 1e-30f && largest <= 3.40282347e38f;
    const F inverse = set1(usable ? kMostQ / largest : 0.0f);
    out.q_factor[r] = usable ? largest / kMostQ * unit : largest - largest;
    auto* to = reinterpret_cast<uint16_t*>(out.q + r * out.q_stride);
    for (int32_t d = 0; d < 2 * out.q_stride; d += kLanes) {
      const F x = d < a.k_dim && usable ? mul(lanes_at(d), inverse) : zero();
      store_low16(to + d, add(x, set1(kShift)));
    }
  }
}

// ---- Sources of pairs for the sums of a tile
// ------------------------------------------------------ k_pairs: a pair of dimensions of kLanes
// positions, the vec-th such vector. v_pairs: kLanes dimensions of a pair of positions, starting
// with d. While sums run, the next tile is prefetched.

/// Rounded before, for all rows.
struct Rounded {
  const RoundedTile& t;

  HEARTH_SIMD I k_pairs(int32_t pair, int vec) const {
    return load_ints(t.k + int64_t{pair} * kSoftmaxTile + vec * kLanes);
  }
  HEARTH_SIMD I v_pairs(int pair, int64_t d) const { return load_ints(t.v + pair * t.padded + d); }
  /// K was prefetched while it was rounded.
  HEARTH_SIMD void ask_in_scores(const Next& next, int32_t pair) const {
    if (pair < kTilePairs) next.ask_position(2 * pair);
  }
  HEARTH_SIMD void ask_in_values(const Next& next, int pair) const {
    next.ask_position(2 * pair + 1);
  }
};

constexpr int32_t kMostDimsInPlace = 256;

/// Rounded in registers, for few rows, whose sums take no longer than rounding does. k_dim and
/// v_dim are multiples of 64; sub-tiles that no row sees point to one that is seen.
template <typename Kv>
struct InPlace {
  const uint16_t* k[kSubTiles];
  const uint16_t* v[kSubTiles];
  int64_t block_size;
  int64_t v_dim;
  alignas(64) float k_magic[kMostDimsInPlace / kRoundedDims * kSoftmaxTile];
  alignas(64) float v_magic[kSoftmaxTile];

  InPlace(const AttentionSplit& a, const StoredTile& stored, const RoundedTile& out)
      : block_size(a.block_size), v_dim(a.v_dim) {
    alignas(64) int32_t bounds[kSoftmaxTile] = {};
    for (int32_t first = 0; first < a.k_dim; first += kRoundedDims) {
      k_bounds<Kv>(a, stored, first, first + kRoundedDims, bounds);
      const int32_t at = first / kRoundedDims * kSoftmaxTile;
      use_k_bounds(bounds, k_magic + at, out.k_step + at);
    }
    int seen = 0;
    while (stored.k[seen] == nullptr) ++seen;
    for (int i = 0; i < kSubTiles; ++i) {
      const int sub = stored.k[i] != nullptr ? i : seen;
      k[i] = reinterpret_cast<const uint16_t*>(stored.k[sub]) + stored.offset[sub];
      v[i] = reinterpret_cast<const uint16_t*>(stored.v[sub]) + stored.offset[sub] * v_dim;
      const typename Kv::V values(a, stored.v[sub], stored.offset[sub], nullptr);
      values.bounds(bounds + i * kSubTile);
    }
    use_v_bounds(bounds, v_magic, out);
  }
  HEARTH_SIMD I k_pairs(int32_t pair, int vec) const {
    const uint16_t* at = k[vec / kParts] + 2 * pair * block_size + vec % kParts * kLanes;
    const F magic = load(k_magic + pair / kChunkPairs * kSoftmaxTile + vec * kLanes);
    return pair_low16(add(Kv::lanes(at), magic), add(Kv::lanes(at + block_size), magic));
  }
  HEARTH_SIMD I v_pairs(int pair, int64_t d) const {
    const uint16_t* at = v[2 * pair / kSubTile] + 2 * pair % kSubTile * v_dim + d;
    return pair_low16(add(Kv::lanes(at), set1(v_magic[2 * pair])),
                      add(Kv::lanes(at + v_dim), set1(v_magic[2 * pair + 1])));
  }
  HEARTH_SIMD void ask_in_scores(const Next& next, int32_t pair) const {
    for (int sub = 0; sub < kSubTiles; ++sub) next.ask_pair(sub, pair);
  }
  HEARTH_SIMD void ask_in_values(const Next& next, int pair) const {
    next.ask_position(2 * pair);
    next.ask_position(2 * pair + 1);
  }
};

// ---- One tile of some rows ----------------------------------------------------------------------

/// scores[r][j] = log2(e) * score + log2(step of V) for all positions of a tile.
template <int kRows, bool kAsk, typename Source>
void rounded_scores(const AttentionSplit& a, const RoundedTile& t, const Source& source, int row,
                    const Next& next, float* scores) {
  for (int first = 0; first < kSoftmaxTile; first += kPairVecs * kLanes) {
    F score[kRows][kPairVecs];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int i = 0; i < kPairVecs; ++i) score[r][i] = zero();
    }
    const float* step = t.k_step + first;
    for (int32_t begin = 0; begin < t.pairs; begin += kChunkPairs, step += kSoftmaxTile) {
      const int32_t end = begin + kChunkPairs < t.pairs ? begin + kChunkPairs : t.pairs;
      PairSum sum[kRows][kPairVecs];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int i = 0; i < kPairVecs; ++i) sum[r][i] = pair_zero();
      }
      const int32_t* q = t.q + row * t.q_stride;
      for (int32_t pair = begin; pair < end; ++pair) {
        I k[kPairVecs];
#pragma GCC unroll 4
        for (int i = 0; i < kPairVecs; ++i) {
          k[i] = source.k_pairs(pair, first / kLanes + i);
        }
        if (kAsk && first == 0) source.ask_in_scores(next, pair);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          const I both = set1_int(q[r * t.q_stride + pair]);
#pragma GCC unroll 4
          for (int i = 0; i < kPairVecs; ++i) sum[r][i] = dot2(sum[r][i], both, k[i]);
        }
      }
#pragma GCC unroll 4
      for (int i = 0; i < kPairVecs; ++i) {
        const F k_step = load(step + i * kLanes);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          score[r][i] = fma(to_float(sum[r][i]), k_step, score[r][i]);
        }
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kPairVecs; ++i) {
      const F v_log2 = load(t.v_log2 + first + i * kLanes);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const F factor = set1(t.q_factor[row + r]);
        F x;
        if (a.soft_cap > 0) {
          const F capped = tanh(div(mul(score[r][i], factor), set1(a.soft_cap)));
          x = fma(capped, set1(a.soft_cap * kLog2E), v_log2);
        } else {
          x = fma(score[r][i], factor, v_log2);
        }
        store(scores + r * kSoftmaxTile + first + i * kLanes, x);
      }
    }
  }
}

/// Factors of one row's earlier results and of a tile's.
struct Factors {
  alignas(64) float earlier[16];
  alignas(64) float tile[16];
};

/// 2^x times kMostWeight for x <= 0, with the integer in the low bits of kShift + the result.
HEARTH_SIMD F weight_of(F x) {
  const F held = max(set1(-40.0f), x);  // NaN stays
  const F shifted = add(held, set1(kShift));
  const F r = sub(held, sub(shifted, set1(kShift)));
  // 2^r times kMostWeight for |r| <= 1/2 within 4e-6: interpolated at Chebyshev's nodes.
  F p = set1(79.1772245f);
  p = fma(p, r, set1(458.056904f));
  p = fma(p, r, set1(1967.67061f));
  p = fma(p, r, set1(5677.35448f));
  p = fma(p, r, set1(kMostWeight));
  return fma(p, exp2_of_shifted(shifted), set1(kShift));
}

/// Turns scores of kRows rows into integer weights relative to each row's largest, and takes them
/// into m and l of the rows.
template <int kRows>
void rounded_weights(const Work& w, const RoundedTile& t, int row, int32_t tile, float* scores,
                     uint16_t* weights, Factors* factors) {
  float largest[kRows];
  alignas(64) float drop[16] = {};
  for (int r = 0; r < kRows; ++r) {
    float* mine = scores + r * kSoftmaxTile;
    const Range range(w.a, row + r, tile);
    for (int j = 0; j < range.from && j < kSoftmaxTile; ++j) mine[j] = kMinusInfinity;
    for (int j = range.to > 0 ? range.to : 0; j < kSoftmaxTile; ++j) mine[j] = kMinusInfinity;
    F most[kParts];
    for (int p = 0; p < kParts; ++p) most[p] = load(mine + p * kLanes);
    for (int i = 16; i < kSoftmaxTile; i += 16) {
      for (int p = 0; p < kParts; ++p) most[p] = max(most[p], load(mine + i + p * kLanes));
    }
    largest[r] = max16(most);
    const float m = w.partial->m[row + r];
    drop[r] = largest[r] == m ? 0.0f : -__builtin_fabsf(largest[r] - m) * kLn2;
  }
  for (int i = 0; i < 16; i += kLanes) {
    store(factors->earlier + i, exp(load(drop + i)));
  }
  for (int r = 0; r < kRows; ++r) {
    float* m = w.partial->m + row + r;
    const bool rises = largest[r] > *m;
    const float smaller = factors->earlier[r];
    factors->earlier[r] = rises ? smaller : 1.0f;
    factors->tile[r] = (rises ? 1.0f : smaller) * (1.0f / kMostWeight);
    if (rises) *m = largest[r];
  }
  for (int r = 0; r < kRows; ++r) {
    const F top = set1(largest[r] == kMinusInfinity ? 0.0f : largest[r]);
    F sum[kParts];
    for (int p = 0; p < kParts; ++p) sum[p] = zero();
    for (int i = 0; i < kSoftmaxTile; i += 16) {
      for (int p = 0; p < kParts; ++p) {
        const int at = i + p * kLanes;
        const F weight = weight_of(sub(load(scores + r * kSoftmaxTile + at), top));
        store_low16(weights + r * kSoftmaxTile + at, weight);
        sum[p] = fma(sub(weight, set1(kShift)), load(t.v_inverse + at), sum[p]);
      }
    }
    float* l = w.l + 16 * (row + r);
    for (int p = 0; p < kParts; ++p) {
      const F earlier = mul(load(l + p * kLanes), set1(factors->earlier[r]));
      store(l + p * kLanes, fma(sum[p], set1(factors->tile[r]), earlier));
    }
  }
}

/// o[r] = o[r] * earlier[r] + tile[r] * (sum over pairs of weights times V), for kVecs vectors.
template <int kRows, int kVecs, bool kAsk, typename Source>
HEARTH_SIMD void rounded_values(const Source& source, int64_t padded, int64_t first, int from,
                                int to, const int32_t* weights, const Factors& factors,
                                const Next& next, float* o) {
  PairSum sum[kRows][kVecs];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < kVecs; ++i) sum[r][i] = pair_zero();
  }
  for (int pair = from; pair < to; ++pair) {
    I v[kVecs];
#pragma GCC unroll 4
    for (int i = 0; i < kVecs; ++i) v[i] = source.v_pairs(pair, first + i * kLanes);
    if (kAsk && first == 0) source.ask_in_values(next, pair);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const I both = set1_int(weights[r * kTilePairs + pair]);
#pragma GCC unroll 4
      for (int i = 0; i < kVecs; ++i) sum[r][i] = dot2(sum[r][i], both, v[i]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const F earlier = set1(factors.earlier[r]);
    const F factor = set1(factors.tile[r]);
#pragma GCC unroll 4
    for (int i = 0; i < kVecs; ++i) {
      float* at = o + r * padded + first + i * kLanes;
      store(at, fma(to_float(sum[r][i]), factor, mul(load(at), earlier)));
    }
  }
}

/// kRows rows, starting with `row`, over one tile. With kAsk, prefetches the next tile's V.
template <int kRows, bool kAsk, typename Source>
void rounded_rows(const Work& w, const RoundedTile& t, const Source& source, int row, int32_t tile,
                  const Next& next) {
  int from = kSoftmaxTile;
  int to = 0;
  for (int r = 0; r < kRows; ++r) {
    const Range range(w.a, row + r, tile);
    if (range.from >= range.to) continue;
    from = range.from < from ? range.from : from;
    to = range.to > to ? range.to : to;
  }
  if (from >= to) return;
  alignas(64) float scores[kRows * kSoftmaxTile];
  alignas(64) int32_t weights[kRows * kTilePairs];
  Factors factors;
  rounded_scores<kRows, kAsk>(w.a, t, source, row, next, scores);
  rounded_weights<kRows>(w, t, row, tile, scores, reinterpret_cast<uint16_t*>(weights), &factors);
  float* o = w.o + row * w.padded;
  const int first_pair = from / 2;
  const int end_pair = (to + 1) / 2;
  int64_t d = 0;
  for (; d + kPairVecs * kLanes <= w.padded; d += kPairVecs * kLanes) {
    rounded_values<kRows, kPairVecs, kAsk>(source, w.padded, d, first_pair, end_pair, weights,
                                           factors, next, o);
  }
  for (; d < w.padded; d += kLanes) {
    rounded_values<kRows, 1, kAsk>(source, w.padded, d, first_pair, end_pair, weights, factors,
                                   next, o);
  }
}

/// All rows over one tile.
template <bool kAsk, typename Source>
void rounded_tile(const Work& w, const RoundedTile& t, const Source& source, int32_t tile,
                  const Next& next) {
  int row = 0;
  if (w.a.num_rows >= kRowsAtOnce) {
    rounded_rows<kRowsAtOnce, kAsk>(w, t, source, row, tile, next);
    row += kRowsAtOnce;
  }
  for (; row + kRowsAtOnce <= w.a.num_rows; row += kRowsAtOnce) {
    rounded_rows<kRowsAtOnce, false>(w, t, source, row, tile, next);
  }
  for (; row + 2 <= w.a.num_rows; row += 2) rounded_rows<2, kAsk>(w, t, source, row, tile, next);
  if (row < w.a.num_rows) rounded_rows<1, kAsk>(w, t, source, row, tile, next);
}

// ---- One split --------------------------------------------------------------------------------

template <typename Kv>
void attend_rounded(const AttentionSplit& a, AttentionPartial* partial, float* o) {
  const RoundedTile t(a);
  float* l = t.rest();
  float* scales = l + kMaxAttentionRows * 16;  // for 16 positions of V
  const Work w{a, partial, t.padded, l, o};
  [[maybe_unused]] const bool in_place = a.v != nullptr && a.num_rows <= kRowsAtOnce &&
                                         a.k_dim % 64 == 0 && a.v_dim % 64 == 0 &&
                                         a.k_dim <= kMostDimsInPlace;
  const SeenByRows seen = begin_rows(w);
  round_q(a, t);
  for_tiles(a, seen, Kv::kValueBytes,
            [&](int32_t tile, const StoredTile& stored, const Next& next) HEARTH_SIMD_LAMBDA {
              if constexpr (Kv::kInPlace) {
                if (in_place) {
                  const InPlace<Kv> source(a, stored, t);
                  if (next.wanted) return rounded_tile<true>(w, t, source, tile, next);
                  return rounded_tile<false>(w, t, source, tile, next);
                }
              }
              round_k<Kv>(a, stored, next, t);
              if (a.v != nullptr) {
                round_v<Kv>(a, stored, next, t, scales);
              } else {
                round_v_in_k<Kv>(a, stored, t);
              }
              const bool ask = next.wanted && a.v != nullptr;
              if (ask) return rounded_tile<true>(w, t, Rounded{t}, tile, next);
              return rounded_tile<false>(w, t, Rounded{t}, tile, next);
            });
  end_rows(w);
  for (int r = 0; r < a.num_rows; ++r) partial->m[r] *= kLn2;
}

}  // namespace

constinit const RoundedAttention HEARTH_OF_SET(kRoundedAttention) = {
    attend_rounded<Halves<LoadF16>>, attend_rounded<Halves<LoadBf16>>, attend_rounded<Q8>};

}  // namespace hearth::kernels
