#pragma once
// The attention kernels, written once against the simd_*.h vocabulary, compiled per instruction
// set.
//
// Positions are processed in tiles of kSoftmaxTile at absolute multiples, with a running maximum
// per row (online softmax). K and V of a tile are converted to f32 in scratch memory once for all
// rows; for few rows they are converted in registers instead, to the same values
// (kernels/cpu/attention/sources.h). Products over q8_0 and q4_0 are those of integers
// (kernels/cpu/attention/integers.h). A row's bits depend only on its own q, its positions and
// their K and V: every score is one chain over k_dim and every o is one chain over positions,
// however rows are grouped. Unused slots may hold anything, even NaN: V of a position is not read
// for a row that does not see the position, or is multiplied by an integer zero.

#include "kernels/cpu/attention/integers.h"
#include "kernels/cpu/attention/kernels.h"
#include "kernels/cpu/attention/sources.h"
#include "kernels/cpu/simd/math.h"

namespace hearth::kernels {
namespace {

// ---- Blocks of chains -------------------------------------------------------------------------

/// scores[r][j] = scale * q[r] . k[j] (with soft cap) for the positions of a tile.
template <int kRows, bool kAsk, typename Source>
void tile_scores(const AttentionSplit& a, int first_row, const TileData& data, const Next& next,
                 float* scores) {
  const Source k(data);
  const int32_t n = a.k_dim;
  const float* row[kRows];
  for (int r = 0; r < kRows; ++r) row[r] = a.q[first_row + r];
  for (int first_vec = 0; first_vec < kSoftmaxTile / kLanes; first_vec += kVecBlock) {
    F acc[kRows][kVecBlock];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int i = 0; i < kVecBlock; ++i) acc[r][i] = zero();
    }
    for (int32_t d = 0; d < n; d += Source::kDims) {
      if constexpr (kAsk) next.ask_k<2>(d);
#pragma GCC unroll 4
      for (int e = 0; e < Source::kDims; ++e) {
        F kd[kVecBlock];
#pragma GCC unroll 4
        for (int i = 0; i < kVecBlock; ++i) kd[i] = k.lanes(d, e, first_vec + i);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          const F qd = set1(row[r][d + e]);
#pragma GCC unroll 4
          for (int i = 0; i < kVecBlock; ++i) acc[r][i] = fma(qd, kd[i], acc[r][i]);
        }
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
HEARTH_SIMD void values_block(const Source& v, int64_t padded, int64_t first, int from, int to,
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
    for (int i = 0; i < kVecs; ++i) vj[i] = v.template lanes<kVecs>(j, first, i);
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
void tile_values(const TileData& data, int64_t padded, int from, int to, const float* weights,
                 const float* alpha, const Next& next, float* o) {
  const Source v(data);
  int64_t d = 0;
  for (; d + kVecBlock * kLanes <= padded; d += kVecBlock * kLanes) {
    values_block<kRows, kVecBlock, kAsk>(v, padded, d, from, to, weights, alpha, next, o);
  }
  for (; d < padded; d += kLanes) {
    values_block<kRows, 1, kAsk>(v, padded, d, from, to, weights, alpha, next, o);
  }
}

// ---- What is done for each type ----------------------------------------------------------------

using ConvertFn = void (*)(const AttentionSplit&, const char* block, int32_t offset,
                           const float* scales, float* out);
using WidenFn = void (*)(const TileData&, int sub);
using ScoresFn = void (*)(const AttentionSplit&, int row, const TileData&, const Next&,
                          float* scores);
using ValuesFn = void (*)(const TileData&, int64_t padded, int from, int to, const float* weights,
                          const float* alpha, const Next&, float* o);
using IntegerValuesFn = void (*)(const TileData&, int from, int to, const RowWeights&, const Next&,
                                 float* o);

/// The functions for 1, 2 and kRowBlock rows, without and with prefetching.
template <typename Fn>
struct ByRows {
  Fn of[3][2];

  template <int kRows>
  Fn get(bool ask) const {
    return of[kRows == kRowBlock ? 2 : kRows - 1][ask ? 1 : 0];
  }
};
template <typename Source>
constexpr ByRows<ScoresFn> kScores = {
    {{tile_scores<1, false, Source>, tile_scores<1, true, Source>},
     {tile_scores<2, false, Source>, tile_scores<2, true, Source>},
     {tile_scores<kRowBlock, false, Source>, tile_scores<kRowBlock, true, Source>}}};
template <typename Source>
constexpr ByRows<ValuesFn> kValues = {
    {{tile_values<1, false, Source>, tile_values<1, true, Source>},
     {tile_values<2, false, Source>, tile_values<2, true, Source>},
     {tile_values<kRowBlock, false, Source>, tile_values<kRowBlock, true, Source>}}};

template <typename Source>
constexpr ByRows<ScoresFn> kIntegerScores = {
    {{integer_scores<1, false, Source>, integer_scores<1, true, Source>},
     {integer_scores<2, false, Source>, integer_scores<2, true, Source>},
     {integer_scores<kRowBlock, false, Source>, integer_scores<kRowBlock, true, Source>}}};
template <typename Source>
constexpr ByRows<IntegerValuesFn> kIntegerValues = {
    {{integer_values<1, false, Source>, integer_values<1, true, Source>},
     {integer_values<2, false, Source>, integer_values<2, true, Source>},
     {integer_values<kRowBlock, false, Source>, integer_values<kRowBlock, true, Source>}}};

struct TypeOfKv {
  int32_t value_bits;
  int32_t position_bytes;  ///< of a row of K, per position
  float scale_unit;        ///< 0: no scales
  ConvertFn to_f32_k;      ///< of integers only the front that is V
  ConvertFn to_f32_v;
  // In place; null: only through scratch memory.
  const ByRows<ScoresFn>* scores;
  const ByRows<ValuesFn>* values;
  // Of integers.
  const ByRows<IntegerValuesFn>* integer_values;
  WidenFn widen;

  bool integers() const { return integer_values != nullptr; }
};

template <typename Tile>
constexpr TypeOfKv through_scratch(int32_t bytes) {
  return {8 * bytes, bytes, 0, Tile::to_f32_k, Tile::to_f32_v, nullptr, nullptr, nullptr, nullptr};
}
template <typename Keys, typename Values>
constexpr TypeOfKv of_integers(int32_t bits, ConvertFn front) {
  return {bits,
          4,
          1,
          front,
          nullptr,
          &kIntegerScores<Keys>,
          nullptr,
          &kIntegerValues<Values>,
          widen_values<Values>};
}
// In the order of KvType.
constexpr TypeOfKv kTypes[kNumKvTypes] = {
    through_scratch<PlainTile<NumberF32>>(4),
    {16, 2, 0, PlainTile<NumberF16>::to_f32_k, PlainTile<NumberF16>::to_f32_v, &kScores<HalfK>,
     &kValues<HalfV>, nullptr, nullptr},
    through_scratch<PlainTile<NumberBf16>>(2),
    of_integers<ByteKeys, BytePairs>(8, front_bytes_to_f32),
    {8, 1, kFp8Unit, Fp8Tile::to_f32_k, Fp8Tile::to_f32_v, &kScores<Fp8K>, &kValues<Fp8V>, nullptr,
     nullptr},
    of_integers<NibbleKeys, NibblePairs>(4, front_nibbles_to_f32),
};

/// Data shared by the rows of a split, and their results so far.
struct Work {
  const AttentionSplit& a;
  AttentionPartial* partial;
  int64_t padded;
  float* l;  ///< (rows, 16)
  float* o;  ///< (rows, padded)
  const ByRows<ScoresFn>& scores;
  const ByRows<ValuesFn>& values;
  const ByRows<IntegerValuesFn>* integer_values;  ///< if not null, in place of `values`
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

/// V of one tile, weighted by `scores`, to the results of kRows rows.
template <int kRows>
void floats_of_tile(const Work& w, const TileData& data, int row, const Range& range,
                    const Next& next, bool ask, float* scores) {
  float alpha[kRows];
  for (int r = 0; r < kRows; ++r) {
    alpha[r] =
        tile_softmax(scores + r * kSoftmaxTile, w.partial->m + row + r, w.l + 16 * (row + r));
  }
  w.values.get<kRows>(ask)(data, w.padded, range.from, range.to, scores, alpha, next,
                           w.o + row * w.padded);
}
template <int kRows>
void integers_of_tile(const Work& w, const TileData& data, int row, const Range& range,
                      const Next& next, bool ask, const float* scores) {
  float alpha[kRows];
  const RowWeights weights{data.weights, data.factors, alpha};
  integer_softmax<kRows>(scores, data.multipliers, num_scales(w.a.v_dim), w.partial->m + row,
                         w.l + 16 * row, weights);
  w.integer_values->get<kRows>(ask)(data, range.from, range.to, weights, next,
                                    w.o + row * w.padded);
}

/// kRows rows, starting with `row`, over one tile; all of them see `range`.
template <int kRows>
void rows_of_tile(const Work& w, const TileData& data, int row, const Range& range,
                  const Next& next, bool ask) {
  alignas(64) float scores[kRows * kSoftmaxTile];
  w.scores.get<kRows>(ask)(w.a, row, data, next, scores);
  for (int r = 0; r < kRows; ++r) {
    float* mine = scores + r * kSoftmaxTile;
    for (int j = 0; j < range.from; ++j) mine[j] = kMinusInfinity;
    for (int j = range.to; j < kSoftmaxTile; ++j) mine[j] = kMinusInfinity;
  }
  if (w.integer_values != nullptr) {
    integers_of_tile<kRows>(w, data, row, range, next, ask, scores);
  } else {
    floats_of_tile<kRows>(w, data, row, range, next, ask, scores);
  }
}

int some_rows_of_tile(const Work& w, const TileData& data, int row, int alike, const Range& range,
                      const Next& next, bool ask) {
  if (alike >= kRowBlock) {
    rows_of_tile<kRowBlock>(w, data, row, range, next, ask);
    return kRowBlock;
  }
  if (alike >= 2) {
    rows_of_tile<2>(w, data, row, range, next, ask);
    return 2;
  }
  rows_of_tile<1>(w, data, row, range, next, ask);
  return 1;
}

// ---- One split --------------------------------------------------------------------------------

/// All rows over one tile whose K and V are available.
void tile_of_rows(const Work& w, const TileData& data, int32_t tile, const Next& next, bool ask) {
  const AttentionSplit& a = w.a;
  int from = 0;  // of the range whose multipliers are there
  int to = 0;
  for (int row = 0; row < a.num_rows;) {
    const Range range(a, row, tile);
    if (range.from >= range.to) {
      ++row;
      continue;
    }
    if (w.integer_values != nullptr && (range.from != from || range.to != to)) {
      from = range.from;
      to = range.to;
      find_multipliers(a.v_dim, data, from, to);
    }
    int alike = 1;  // neighbours that see the same positions: the heads of one token, or all rows
    while (alike < kRowBlock && row + alike < a.num_rows && Range(a, row + alike, tile) == range) {
      ++alike;
    }
    row += some_rows_of_tile(w, data, row, alike, range, next, ask);
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

/// Bytes of the elements of `dims` values of V at one position.
int64_t row_bytes(const TypeOfKv& type, int32_t dims) {
  if (type.value_bits < 8) dims = num_scales(dims) * kScaleDims;
  return int64_t{dims} * type.value_bits / 8;
}

/// The first of a block's scales that is of position `offset`.
const char* scales_of(const AttentionSplit& a, const TypeOfKv& type, int32_t dims,
                      const char* block, int32_t offset) {
  if (type.integers()) dims = (dims + 3) / 4 * 4;
  return block + a.block_size * row_bytes(type, dims) + 2 * offset;
}

/// Prefetches the scales of 16 positions, which are beyond the elements of a block.
void ask_scales(const AttentionSplit& a, const TypeOfKv& type, int32_t dims, const char* block,
                int32_t offset) {
  if (type.scale_unit == 0) return;
  const char* scales = scales_of(a, type, dims, block, offset);
  for (int32_t s = 0; s < num_scales(dims); ++s) {
    __builtin_prefetch(scales + int64_t{2} * s * a.block_size, 0, 2);
  }
}

/// How a split reads K and V.
struct Reading {
  const TypeOfKv& k;
  const TypeOfKv& v;
  bool k_in_place;
  bool v_in_place;
  bool integer_values;

  static Reading of(const AttentionSplit& a) {
    const auto type_of = [](KvType type) -> const TypeOfKv& {
      return kTypes[static_cast<int>(type)];
    };
    const TypeOfKv& k = type_of(a.k_type);
    const TypeOfKv& v = type_of(a.v_type);
    const bool apart = a.v != nullptr;
    const bool few = apart && a.num_rows <= kRowBlock;
    const bool integers = apart && v.integers();
    return {k, v, k.integers() || (few && k.scores != nullptr && a.k_dim % kScaleDims == 0),
            few && (integers || (v.values != nullptr && a.v_dim % kScaleDims == 0)), integers};
  }
  const ByRows<ScoresFn>& scores() const { return k_in_place ? *k.scores : kScores<ScratchK>; }
  const ByRows<ValuesFn>& values() const {
    return v_in_place && !integer_values ? *v.values : kValues<ScratchV>;
  }
  const ByRows<IntegerValuesFn>* integers() const {
    if (!integer_values) return nullptr;
    return v_in_place ? v.integer_values : &kIntegerValues<ScratchPairs>;
  }
};

/// Makes K of 16 positions available to the chains.
void bring_k(const AttentionSplit& a, const Reading& reading, const char* block, int32_t offset,
             int sub, TileData& data) {
  float* scales = data.k_scales + sub * kSubTile;
  if (reading.k.scale_unit != 0) {
    load_tile_scales(scales_of(a, reading.k, a.k_dim, block, offset), num_scales(a.k_dim),
                     a.block_size, reading.k.scale_unit, scales);
  }
  if (reading.k_in_place) data.k_in_place[sub] = block + offset * reading.k.position_bytes;
  if (!reading.k_in_place || (reading.k.integers() && a.v == nullptr)) {
    reading.k.to_f32_k(a, block, offset, scales, data.k + sub * kSubTile);
  }
}
/// `block`: null if V is the front of K.
void bring_v(const AttentionSplit& a, const Reading& reading, const char* block, int32_t offset,
             int sub, TileData& data) {
  float* scales = data.v_scales + sub * kSubTile;
  float* v = data.v + sub * kSubTile * data.padded;
  if (block == nullptr) {
    front_of_k(data.k + sub * kSubTile, a.v_dim, data.padded, v);
    return;
  }
  if (reading.v.scale_unit != 0) {
    load_tile_scales(scales_of(a, reading.v, a.v_dim, block, offset), num_scales(a.v_dim),
                     a.block_size, reading.v.scale_unit, scales);
  }
  data.v_in_place[sub] = block + offset * row_bytes(reading.v, a.v_dim);
  if (reading.v_in_place) return;
  if (reading.integer_values) {
    reading.v.widen(data, sub);
  } else {
    reading.v.to_f32_v(a, block, offset, scales, v);
  }
}

/// Makes the positions of a tile that rows see available, and finds the next tile's addresses.
/// Returns whether these may be prefetched.
bool bring_tile(const AttentionSplit& a, const Reading& reading, const SeenByRows& seen,
                int32_t tile, Next& next, TileData& data) {
  const auto block_of = [&a](int32_t position) {
    return a.blocks[position / a.block_size] * a.block_bytes;
  };
  bool ask = true;
  bool any = false;
  for (int sub = 0; sub < kSubTiles; ++sub) {
    const int32_t later = tile + sub * kSubTile + kSoftmaxTile;
    ask = ask && later <= a.last_ahead;
    if (ask) {
      const int64_t block = block_of(later);
      const int32_t offset = later % a.block_size;
      next.k[sub] = a.k + block + offset * reading.k.position_bytes;
      next.v[sub] = a.v == nullptr ? next.k[sub] : a.v + block + offset * next.v_row_bytes;
      ask_scales(a, reading.k, a.k_dim, a.k + block, offset);
      if (a.v != nullptr) ask_scales(a, reading.v, a.v_dim, a.v + block, offset);
    }
    const int32_t position = tile + sub * kSubTile;
    if (position + kSubTile <= seen.first || position > seen.last) {
      if (!any) continue;
      data.k_in_place[sub] = data.k_in_place[sub - 1];
      data.v_in_place[sub] = data.v_in_place[sub - 1];
      continue;
    }
    const int64_t block = block_of(position);
    const int32_t offset = position % a.block_size;
    bring_k(a, reading, a.k + block, offset, sub, data);
    bring_v(a, reading, a.v == nullptr ? nullptr : a.v + block, offset, sub, data);
    for (int before = any ? sub : 0; before < sub; ++before) {
      data.k_in_place[before] = data.k_in_place[sub];
      data.v_in_place[before] = data.v_in_place[sub];
    }
    any = true;
  }
  return ask;
}

/// Divides a split's scratch memory.
TileData tile_data(const AttentionSplit& a) {
  const int64_t k_scales = num_scales(a.k_dim);
  const int64_t v_scales = num_scales(a.v_dim);
  TileData data{};
  data.padded = padded_dims(a.v_dim);
  float* at = a.scratch + kMaxAttentionRows * 16;  // l
  const auto floats = [&at](int64_t n) {
    float* begin = at;
    at += n;
    return begin;
  };
  const auto halves = [&](int64_t n) { return reinterpret_cast<int16_t*>(floats(n / 2)); };
  data.k = floats(kSoftmaxTile * k_scales * kScaleDims);
  data.v = floats(kSoftmaxTile * data.padded);
  data.v_pairs = reinterpret_cast<int16_t*>(data.v);
  data.k_scales = floats(kSoftmaxTile * k_scales);
  data.v_scales = floats(kSoftmaxTile * v_scales);
  data.multipliers.of = halves(kSoftmaxTile * v_scales);
  data.multipliers.units = floats(v_scales);
  data.weights = halves(kRowBlock * kSoftmaxTile * v_scales);
  data.factors = floats(kRowBlock * v_scales);
  data.block_size = a.block_size;
  data.v_dim = a.v_dim;
  return data;
}

void attend_split(const AttentionSplit& a, AttentionPartial* partial, float* o) {
  const Reading reading = Reading::of(a);
  TileData data = tile_data(a);
  float* l = a.scratch;
  const Work w{a, partial,          data.padded,      l,
               o, reading.scores(), reading.values(), reading.integers()};
  const SeenByRows seen = begin_rows(w);
  Next next{};
  next.k_row_bytes = a.block_size * reading.k.position_bytes;
  next.v_row_bytes = row_bytes(reading.v, a.v_dim);
  next.v_value_bits = reading.v.value_bits;
  for (int32_t tile = seen.first / kSoftmaxTile * kSoftmaxTile; tile <= seen.last;
       tile += kSoftmaxTile) {
    const bool ask = bring_tile(a, reading, seen, tile, next, data);
    tile_of_rows(w, data, tile, next, ask);
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

}  // namespace

constinit const AttentionKernels HEARTH_OF_SET(kAttention) = {quantize_query, attend_split, merge,
                                                              finish};

}  // namespace hearth::kernels
