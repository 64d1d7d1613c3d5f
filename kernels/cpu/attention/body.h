#pragma once
// The attention kernels, written once against the simd_*.h vocabulary, compiled per instruction
// set.
//
// Positions are processed in tiles of kSoftmaxTile at absolute multiples, with a running maximum
// per row (online softmax). K and V of a tile are converted to f32 in scratch memory once for all
// rows; for few rows they are converted in registers instead (InPlace), to the same values. A row's
// bits depend only on its own q, its positions and their K and V: every score is one chain over
// k_dim and every o is one chain over positions, however rows are grouped. V of a position is
// not read for a row that does not see the position: unused slots may hold anything, even NaN.

#include "kernels/cpu/attention/kernels.h"
#include "kernels/cpu/simd/math.h"

namespace hearth::kernels {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();
constexpr int kSubTile = 16;  // positions that are certain to lie in one block
// Rows and vectors in one block of chains: enough to hide fma latency, few enough for the registers
// (16 + 4 + 1 of 32, 8 + 2 + 1 of 16).
constexpr int kRowBlock = 4;
constexpr int kVecBlock = kRegisters == 32 ? 4 : 2;

/// Addresses of the next tile's K and V. Blocks are scattered over the pool, where no hardware
/// prefetcher predicts them, so the sums over one tile prefetch the lines of the next into L2, a
/// few at a time: prefetches issued all at once wait for each other.
struct Next {
  const char* k[kSoftmaxTile / kSubTile];
  const char* v[kSoftmaxTile / kSubTile];
  int64_t k_row_bytes;  ///< one dimension of a block
  int64_t v_row_bytes;  ///< one position
  int64_t value_bytes;

  HEARTH_SIMD void ask_k(int32_t d) const {
    for (const char* sub : k) __builtin_prefetch(sub + d * k_row_bytes, 0, 2);
  }
  /// 64 dimensions, starting with `first`, take two lines in f16.
  HEARTH_SIMD void ask_v(int j, int64_t first) const {
    const char* row = v[j / kSubTile] + j % kSubTile * v_row_bytes + first * value_bytes;
    __builtin_prefetch(row, 0, 2);
    __builtin_prefetch(row + 64, 0, 2);
  }
};

// ---- K and V as f32 ---------------------------------------------------------------------------
// to_f32_k: converts 16 positions of K (k_dim, block_size) to columns of (k_dim, kSoftmaxTile).
// to_f32_v: converts 16 positions of V (block_size, v_dim) to rows of (16, padded), with zeros
// after v_dim. `offset` is the first position in its block.

struct KvF32 {
  using T = float;
  static constexpr bool kInPlace = false;
  static HEARTH_SIMD F load_lanes(const T* p) { return load(p); }
  static HEARTH_SIMD F load_some(const T* p, int n) { return load_partial(p, n); }
};
struct KvF16 {
  using T = uint16_t;
  static constexpr bool kInPlace = true;
  static HEARTH_SIMD F load_lanes(const T* p) { return load_f16(p); }
  static HEARTH_SIMD F load_some(const T* p, int n) { return load_f16_partial(p, n); }
};
struct KvBf16 {
  using T = uint16_t;
  static constexpr bool kInPlace = false;
  static HEARTH_SIMD F load_lanes(const T* p) { return load_bf16(p); }
  static HEARTH_SIMD F load_some(const T* p, int n) { return load_bf16_partial(p, n); }
};

template <typename Kv>
struct PlainTile {
  using T = typename Kv::T;
  static constexpr int64_t kValueBytes = sizeof(T);
  static constexpr bool kInPlace = Kv::kInPlace;

  static void to_f32_k(const AttentionSplit& a, const char* block, int32_t offset, float* out) {
    const T* from = reinterpret_cast<const T*>(block) + offset;
    for (int32_t d = 0; d < a.k_dim; ++d, from += a.block_size, out += kSoftmaxTile) {
      for (int p = 0; p < kParts; ++p) store(out + p * kLanes, Kv::load_lanes(from + p * kLanes));
    }
  }

  static void to_f32_v(const AttentionSplit& a, const char* block, int32_t offset, float*,
                       float* out) {
    const int32_t n = a.v_dim;
    const int64_t padded = padded_dims(n);
    const T* from = reinterpret_cast<const T*>(block) + static_cast<int64_t>(offset) * n;
    for (int j = 0; j < kSubTile; ++j, from += n, out += padded) {
      int32_t d = 0;
      for (; d + kLanes <= n; d += kLanes) store(out + d, Kv::load_lanes(from + d));
      if (d < n) store(out + d, Kv::load_some(from + d, n - d));
      for (d = (n + kLanes - 1) / kLanes * kLanes; d < padded; d += kLanes) store(out + d, zero());
    }
  }
};

/// Integers times a scale per 32 of them, exact in f32.
struct Q8Tile {
  static constexpr int64_t kValueBytes = 1;
  static constexpr bool kInPlace = false;

  static void to_f32_k(const AttentionSplit& a, const char* block, int32_t offset, float* out) {
    const auto* from = reinterpret_cast<const uint8_t*>(block) + offset;
    const int64_t values = static_cast<int64_t>(a.k_dim) * a.block_size;
    const auto* scales = reinterpret_cast<const uint16_t*>(block + values) + offset;
    for (int32_t first = 0; first < a.k_dim; first += 32, scales += a.block_size) {
      F scale[kParts];
      for (int p = 0; p < kParts; ++p) scale[p] = load_f16(scales + p * kLanes);
      const int32_t end = first + 32 < a.k_dim ? first + 32 : a.k_dim;
      for (int32_t d = first; d < end; ++d, from += a.block_size, out += kSoftmaxTile) {
        for (int p = 0; p < kParts; ++p) {
          store(out + p * kLanes, mul(to_float(load_i8(from + p * kLanes)), scale[p]));
        }
      }
    }
  }

  /// `scales` has room for the scales of 16 positions as f32.
  static void to_f32_v(const AttentionSplit& a, const char* block, int32_t offset, float* scales,
                       float* out) {
    const int32_t n = a.v_dim;
    const int32_t num_scales = (n + 31) / 32;
    const int64_t padded = padded_dims(n);
    const auto* from = reinterpret_cast<const uint8_t*>(block) + static_cast<int64_t>(offset) * n;
    const auto* stored =
        reinterpret_cast<const uint16_t*>(block + static_cast<int64_t>(a.block_size) * n) +
        static_cast<int64_t>(offset) * num_scales;
    for (int32_t i = 0; i < kSubTile * num_scales; i += kLanes) {
      store(scales + i, load_f16(stored + i));
    }
    for (int j = 0; j < kSubTile; ++j, from += n, scales += num_scales, out += padded) {
      int32_t d = 0;
      for (; d + kLanes <= n; d += kLanes) {
        store(out + d, mul(to_float(load_i8(from + d)), set1(scales[d / 32])));
      }
      if (d < n) {
        uint8_t rest[16] = {};
        for (int32_t i = d; i < n; ++i) rest[i - d] = from[i];
        store(out + d, mul(to_float(load_i8(rest)), set1(scales[d / 32])));
        d += kLanes;
      }
      for (; d < padded; d += kLanes) store(out + d, zero());
    }
  }
};

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

// ---- Sources of K and V for the chains of a tile ------------------------------------------------
// k_lanes: dimension d of kLanes positions, the vec-th such vector. v_lanes: kLanes dimensions of
// position j, starting with d.

/// As f32, from scratch memory.
struct Scratch {
  const float* k;  ///< (k_dim, kSoftmaxTile)
  const float* v;  ///< (kSoftmaxTile, padded)
  int64_t padded;

  HEARTH_SIMD F k_lanes(int32_t d, int vec) const {
    return load(k + d * kSoftmaxTile + vec * kLanes);
  }
  HEARTH_SIMD F v_lanes(int j, int64_t d) const { return load(v + j * padded + d); }
};

/// f16, read in place: k_dim and v_dim are multiples of the vector length. Sub-tiles that no row
/// sees point to a sub-tile that is seen.
struct InPlace {
  const uint16_t* k[kSoftmaxTile / kSubTile];
  const uint16_t* v[kSoftmaxTile / kSubTile];
  int32_t block_size;
  int32_t v_dim;

  HEARTH_SIMD F k_lanes(int32_t d, int vec) const {
    return load_f16(k[vec / kParts] + int64_t{d} * block_size + vec % kParts * kLanes);
  }
  HEARTH_SIMD F v_lanes(int j, int64_t d) const {
    return load_f16(v[j / kSubTile] + int64_t{j % kSubTile} * v_dim + d);
  }
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
template <int kRows, bool kAsk, typename Source>
void tile_scores(const AttentionSplit& a, const float* const* q, const Source& kv, const Next& next,
                 float* scores) {
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
template <int kRows, int kVecs, bool kAsk, typename Source>
HEARTH_SIMD void values_block(const Source& kv, int64_t padded, int64_t first, int from, int to,
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

template <int kRows, bool kAsk, typename Source>
void tile_values(const Source& kv, int64_t padded, int from, int to, const float* weights,
                 const float* alpha, const Next& next, float* o) {
  int64_t d = 0;
  for (; d + kVecBlock * kLanes <= padded; d += kVecBlock * kLanes) {
    values_block<kRows, kVecBlock, kAsk>(kv, padded, d, from, to, weights, alpha, next, o);
  }
  for (; d < padded; d += kLanes) {
    values_block<kRows, 1, kAsk>(kv, padded, d, from, to, weights, alpha, next, o);
  }
}

/// Data shared by the rows of a split, and their results so far.
struct Work {
  const AttentionSplit& a;
  AttentionPartial* partial;
  int64_t padded;
  float* l;  ///< (rows, 16)
  float* o;  ///< (rows, padded)
};

/// The positions of [tile, tile + kSoftmaxTile) that a row attends to, relative to `tile`.
struct Range {
  int from;
  int to;

  Range(const AttentionSplit& a, int row, int32_t tile)
      : from(a.first[row] > tile ? static_cast<int>(a.first[row] - tile) : 0),
        to(a.last[row] - tile < kSoftmaxTile - 1 ? static_cast<int>(a.last[row] - tile + 1)
                                                 : kSoftmaxTile) {}
  bool operator==(const Range&) const = default;
};

/// kRows rows, starting with `row`, over one tile; all of them see `range`.
template <int kRows, bool kAsk, typename Source>
void rows_of_tile(const Work& w, const Source& kv, int row, const Range& range, const Next& next) {
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

template <bool kAsk, typename Source>
int some_rows_of_tile(const Work& w, const Source& kv, int row, int alike, const Range& range,
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
template <typename Source>
void tile_of_rows(const Work& w, const Source& kv, int32_t tile, const Next& next, bool ask) {
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

struct SeenByRows {
  int32_t first;
  int32_t last;
};

/// Clears the results of all rows. Returns the positions of the split that any row sees.
SeenByRows begin_rows(const Work& w) {
  const AttentionSplit& a = w.a;
  SeenByRows seen{a.end, a.begin - 1};
  for (int r = 0; r < a.num_rows; ++r) {
    w.partial->m[r] = kMinusInfinity;
    for (int i = 0; i < 16; ++i) w.l[16 * r + i] = 0.0f;
    for (int64_t d = 0; d < w.padded; ++d) w.o[r * w.padded + d] = 0.0f;
    if (a.first[r] < seen.first) seen.first = a.first[r];
    if (a.last[r] > seen.last) seen.last = a.last[r];
  }
  if (seen.first < a.begin) seen.first = a.begin;
  if (seen.last > a.end - 1) seen.last = a.end - 1;
  return seen;
}

template <typename Kv>
void attend_split(const AttentionSplit& a, AttentionPartial* partial, float* o) {
  const int64_t padded = padded_dims(a.v_dim);
  float* k = a.scratch;
  float* v = k + kSoftmaxTile * a.k_dim;
  float* l = v + kSoftmaxTile * padded;
  float* scales = l + kMaxAttentionRows * 16;  // for 16 positions of V
  const Work w{a, partial, padded, l, o};
  const bool in_place = Kv::kInPlace && a.v != nullptr && a.num_rows <= kRowBlock &&
                        a.k_dim % 64 == 0 && a.v_dim % 64 == 0;
  const auto [seen_first, seen_last] = begin_rows(w);

  const auto block_of = [&a](int32_t position) {
    return a.blocks[position / a.block_size] * a.block_bytes;
  };
  Next next{};
  next.k_row_bytes = a.block_size * Kv::kValueBytes;
  next.v_row_bytes = a.v_dim * Kv::kValueBytes;
  next.value_bytes = Kv::kValueBytes;
  for (int32_t tile = seen_first / kSoftmaxTile * kSoftmaxTile; tile <= seen_last;
       tile += kSoftmaxTile) {
    bool ask = true;
    int seen = 0;
    InPlace there{{}, {}, a.block_size, a.v_dim};
    for (int32_t sub = 0; sub < kSoftmaxTile; sub += kSubTile) {
      const int32_t later = tile + sub + kSoftmaxTile;
      ask = ask && later <= a.last_ahead;
      if (ask) {
        const int64_t block = block_of(later);
        const int32_t offset = later % a.block_size;
        next.k[sub / kSubTile] = a.k + block + offset * Kv::kValueBytes;
        next.v[sub / kSubTile] =
            a.v == nullptr ? next.k[sub / kSubTile] : a.v + block + offset * next.v_row_bytes;
      }
      const int32_t position = tile + sub;
      if (position + kSubTile <= seen_first || position > seen_last) continue;
      const char* block_k = a.k + block_of(position);
      const char* block_v = a.v == nullptr ? nullptr : a.v + block_of(position);
      const int32_t offset = position % a.block_size;
      if constexpr (Kv::kInPlace) {
        if (in_place) {
          for (int i = seen == 0 ? 0 : sub / kSubTile; i < kSoftmaxTile / kSubTile; ++i) {
            there.k[i] = reinterpret_cast<const uint16_t*>(block_k) + offset;
            there.v[i] = reinterpret_cast<const uint16_t*>(block_v) + offset * a.v_dim;
          }
          ++seen;
          continue;
        }
      }
      Kv::to_f32_k(a, block_k, offset, k + sub);
      if (block_v != nullptr) {
        Kv::to_f32_v(a, block_v, offset, scales, v + sub * padded);
      } else {
        front_of_k(k + sub, a.v_dim, padded, v + sub * padded);
      }
    }
    if constexpr (Kv::kInPlace) {
      if (in_place) {
        tile_of_rows(w, there, tile, next, ask);
        continue;
      }
    }
    tile_of_rows(w, Scratch{k, v, padded}, tile, next, ask);
  }
  for (int r = 0; r < a.num_rows; ++r) {
    F lanes[kParts];
    for (int p = 0; p < kParts; ++p) lanes[p] = load(l + 16 * r + p * kLanes);
    partial->l[r] = sum16(lanes);
  }
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

constexpr AttentionKernels attention_kernels() {
  return {attend_split<PlainTile<KvF32>>,
          attend_split<PlainTile<KvF16>>,
          attend_split<PlainTile<KvBf16>>,
          attend_split<Q8Tile>,
          merge,
          finish};
}

}  // namespace

constinit const AttentionKernels HEARTH_OF_SET(kAttention) = attention_kernels();

}  // namespace hearth::kernels
