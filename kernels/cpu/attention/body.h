#pragma once
// The attention kernels, written once against the simd_*.h vocabulary, compiled per instruction
// set.
//
// Positions are processed in tiles of kSoftmaxTile at absolute multiples, with a running maximum
// per row (online softmax). K and V of a tile are converted in registers or, for many rows of some
// types, once for all rows in scratch memory, to the same values
// (kernels/cpu/attention/sources.h). Products over q8_0 and q4_0 are those of integers
// (kernels/cpu/attention/integers.h). A row's bits depend only on its own q, its positions and
// their K and V: every score is one chain over k_dim and every o is one chain over positions,
// however rows are grouped. Unused slots may hold anything, even NaN: V of a position is not read
// for a row that does not see the position, or is multiplied by an integer zero.

#include "kernels/cpu/attention/floats.h"
#include "kernels/cpu/attention/integers.h"
#include "kernels/cpu/attention/kernels.h"

namespace hearth::kernels {
namespace {

// ---- What is done for each type ----------------------------------------------------------------

using ConvertFn = void (*)(const AttentionSplit&, const char* block, int32_t offset,
                           const float* scales, float* out);
using FrontFn = void (*)(const AttentionSplit&, const char* block, int32_t offset, char* out);
using WidenFn = void (*)(const TileData&, int sub);
using ScoresFn = void (*)(const AttentionSplit&, int row, const TileData&, const Next&,
                          float* scores);
using ValuesFn = void (*)(const TileData&, int64_t padded, int from, int to, const float* weights,
                          const float* alpha, const Next&, float* o);
using IntegerValuesFn = void (*)(const TileData&, int from, int to, const RowWeights&, const Next&,
                                 float* o);

/// The functions for 1 to kRowBlock rows, without and with prefetching.
template <typename Fn>
struct ByRows {
  Fn of[kRowBlock][2];

  template <int kRows>
  Fn get(bool ask) const {
    return of[kRows - 1][ask ? 1 : 0];
  }
};
template <typename Source>
constexpr ByRows<ScoresFn> kScores = {
    {{tile_scores<1, false, Source>, tile_scores<1, true, Source>},
     {tile_scores<2, false, Source>, tile_scores<2, true, Source>},
     {tile_scores<3, false, Source>, tile_scores<3, true, Source>},
     {tile_scores<4, false, Source>, tile_scores<4, true, Source>}}};
template <typename Source>
constexpr ByRows<ValuesFn> kValues = {
    {{tile_values<1, false, Source>, tile_values<1, true, Source>},
     {tile_values<2, false, Source>, tile_values<2, true, Source>},
     {tile_values<3, false, Source>, tile_values<3, true, Source>},
     {tile_values<4, false, Source>, tile_values<4, true, Source>}}};

template <typename Source>
constexpr ByRows<ScoresFn> kIntegerScores = {
    {{integer_scores<1, false, Source>, integer_scores<1, true, Source>},
     {integer_scores<2, false, Source>, integer_scores<2, true, Source>},
     {integer_scores<3, false, Source>, integer_scores<3, true, Source>},
     {integer_scores<4, false, Source>, integer_scores<4, true, Source>}}};
template <typename Source>
constexpr ByRows<IntegerValuesFn> kIntegerValues = {
    {{integer_values<1, false, Source>, integer_values<1, true, Source>},
     {integer_values<2, false, Source>, integer_values<2, true, Source>},
     {integer_values<3, false, Source>, integer_values<3, true, Source>},
     {integer_values<4, false, Source>, integer_values<4, true, Source>}}};

// Rows up to which converting in registers is at least as fast (Zen 5): with 16 lanes the units of
// products are not those that convert.
constexpr int32_t kFew = 8;
constexpr int32_t kFewUnlessWide = kLanes == 16 ? kMaxAttentionRows : kFew;

struct TypeOfKv {
  int32_t most_in_place;  ///< rows of a split that read K, or V, in place
  int32_t value_bits;
  int32_t position_bytes;  ///< of a row of K, per position
  float scale_unit;        ///< 0: no scales
  ConvertFn to_f32_k;      ///< of integers only the front that is V
  ConvertFn to_f32_v;
  // In place; null: only through scratch memory.
  const ByRows<ScoresFn>* scores;
  const ByRows<ValuesFn>* values;
  FrontFn front;  ///< of K that is V; null: only through scratch memory
  // Of integers.
  const ByRows<IntegerValuesFn>* integer_values;
  WidenFn widen;

  bool integers() const { return integer_values != nullptr; }
};

template <typename Tile>
constexpr TypeOfKv through_scratch(int32_t bytes) {
  return {0,       8 * bytes, bytes,   0,       Tile::to_f32_k, Tile::to_f32_v,
          nullptr, nullptr,   nullptr, nullptr, nullptr};
}
template <typename Keys, typename Values>
constexpr TypeOfKv of_integers(int32_t most_in_place, int32_t bits, ConvertFn front) {
  return {most_in_place,
          bits,
          4,
          1,
          front,
          nullptr,
          &kIntegerScores<Keys>,
          nullptr,
          nullptr,
          &kIntegerValues<Values>,
          widen_values<Values>};
}
// In the order of KvType.
constexpr TypeOfKv kTypes[kNumKvTypes] = {
    through_scratch<PlainTile<NumberF32>>(4),
    {kFewUnlessWide, 16, 2, 0, PlainTile<NumberF16>::to_f32_k, PlainTile<NumberF16>::to_f32_v,
     &kScores<HalfK>, &kValues<HalfV>, front_halves, nullptr, nullptr},
    through_scratch<PlainTile<NumberBf16>>(2),
    of_integers<ByteKeys, BytePairs>(kMaxAttentionRows, 8, front_bytes_to_f32),
    {kFew, 8, 1, kFp8Unit, Fp8Tile::to_f32_k, Fp8Tile::to_f32_v, &kScores<Fp8K>, &kValues<Fp8V>,
     nullptr, nullptr, nullptr},
    of_integers<NibbleKeys, NibblePairs>(kFewUnlessWide, 4, front_nibbles_to_f32),
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
    if (ask) next.ask_other_k<kRows>(r);
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
                         w.l + 16 * row, weights, ask ? &next : nullptr);
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
  switch (alike) {
    case 1: rows_of_tile<1>(w, data, row, range, next, ask); return 1;
    case 2: rows_of_tile<2>(w, data, row, range, next, ask); return 2;
    case 3: rows_of_tile<3>(w, data, row, range, next, ask); return 3;
    default: rows_of_tile<kRowBlock>(w, data, row, range, next, ask); return kRowBlock;
  }
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
      find_all_multipliers(a.v_dim, data, from, to);
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

/// K, or V, of a split, and how it is read.
struct Stored {
  const TypeOfKv& type;
  bool in_place = false;
  int32_t scales;         ///< 0: none
  int64_t scales_at;      ///< in a block
  int64_t row_bytes = 0;  ///< of K a row of a block, of V a position

  Stored(const AttentionSplit& a, KvType kv_type, int32_t dims)
      : type(kTypes[static_cast<int>(kv_type)]),
        scales(type.scale_unit == 0 ? 0 : num_scales(dims)),
        scales_at(a.block_size *
                  kernels::row_bytes(type, type.integers() ? (dims + 3) / 4 * 4 : dims)) {}

  /// Scales of 16 positions, to columns of (scales, kSoftmaxTile).
  HEARTH_SIMD void load_scales(const AttentionSplit& a, const char* block, int32_t offset,
                               float* out) const {
    load_tile_scales(block + scales_at + 2 * offset, scales, a.block_size, type.scale_unit, out);
  }
  /// Prefetches them; several rows of them share a line in a block of few positions.
  HEARTH_SIMD void ask_scales(const AttentionSplit& a, const char* block, int32_t offset) const {
    const int64_t bytes = int64_t{2} * a.block_size;
    const char* first = block + scales_at + 2 * offset;
    const int64_t stride = bytes < 64 ? 64 : bytes;
    for (int64_t at = 0; at < scales * bytes; at += stride) __builtin_prefetch(first + at, 0, 2);
  }
};

/// How a split reads K and V.
struct Reading {
  Stored k;
  Stored v;
  bool integer_values;

  explicit Reading(const AttentionSplit& a) : k(a, a.k_type, a.k_dim), v(a, a.v_type, a.v_dim) {
    const bool apart = a.v != nullptr;
    const bool whole_k = a.k_dim % kScaleDims == 0, whole_v = a.v_dim % kScaleDims == 0;
    const bool readable = apart || (k.type.front != nullptr && whole_k && whole_v);
    integer_values = apart && v.type.integers();
    k.in_place = k.type.integers() || (readable && whole_k && k.type.scores != nullptr &&
                                       a.num_rows <= k.type.most_in_place);
    v.in_place = readable && a.num_rows <= v.type.most_in_place &&
                 (integer_values || (whole_v && v.type.values != nullptr));
    k.row_bytes = int64_t{a.block_size} * k.type.position_bytes;
    v.row_bytes = kernels::row_bytes(v.type, a.v_dim);
  }
  const ByRows<ScoresFn>& scores() const { return k.in_place ? *k.type.scores : kScores<ScratchK>; }
  const ByRows<ValuesFn>& values() const {
    return v.in_place && !integer_values ? *v.type.values : kValues<ScratchV>;
  }
  const ByRows<IntegerValuesFn>* integers() const {
    if (!integer_values) return nullptr;
    return v.in_place ? v.type.integer_values : &kIntegerValues<ScratchPairs>;
  }
};

/// Makes K of 16 positions available to the chains.
void bring_k(const AttentionSplit& a, const Stored& k, const char* block, int32_t offset, int sub,
             TileData& data) {
  float* scales = data.k_scales + sub * kSubTile;
  k.load_scales(a, block, offset, scales);
  if (k.in_place) data.k_in_place[sub] = block + offset * k.type.position_bytes;
  if (!k.in_place || (k.type.integers() && a.v == nullptr)) {
    k.type.to_f32_k(a, block, offset, scales, data.k + sub * kSubTile);
  }
}
/// `block`: K's if V is its front.
void bring_v(const AttentionSplit& a, const Reading& reading, const char* block, int32_t offset,
             int sub, TileData& data) {
  float* v = data.v + sub * kSubTile * data.padded;
  if (a.v == nullptr) {
    if (!reading.v.in_place) {
      return transpose_front<NumberF32>(data.k + sub * kSubTile, kSoftmaxTile, a.v_dim, data.padded,
                                        v);
    }
    char* halves = reinterpret_cast<char*>(v);
    reading.v.type.front(a, block, offset, halves);
    data.v_in_place[sub] = halves;
    return;
  }
  float* scales = data.v_scales + sub * kSubTile;
  reading.v.load_scales(a, block, offset, scales);
  data.v_in_place[sub] = block + offset * reading.v.row_bytes;
  if (reading.v.in_place) return;
  if (reading.integer_values) {
    reading.v.type.widen(data, sub);
  } else {
    reading.v.type.to_f32_v(a, block, offset, scales, v);
  }
}

/// Walks over the positions of a sequence, a sub-tile at a time.
struct Walk {
  const AttentionSplit& a;
  int32_t block;
  int32_t offset;

  Walk(const AttentionSplit& split, int32_t position)
      : a(split), block(position / split.block_size), offset(position % split.block_size) {}
  int64_t bytes() const { return a.blocks[block] * a.block_bytes; }
  void step() {
    offset += kSubTile;
    if (offset < a.block_size) return;
    offset = 0;
    ++block;
  }
};

/// Finds the addresses of the tile after `tile`. Returns whether all of it may be prefetched.
bool find_next(const AttentionSplit& a, const Reading& reading, int32_t tile, Walk& walk,
               Next& next) {
  if (tile + 2 * kSoftmaxTile - kSubTile > a.last_ahead) return false;
  for (int sub = 0; sub < kSubTiles; ++sub, walk.step()) {
    const int64_t block = walk.bytes();
    next.k[sub] = a.k + block + walk.offset * reading.k.type.position_bytes;
    reading.k.ask_scales(a, a.k + block, walk.offset);
    next.v[sub] = next.k[sub];
    if (a.v == nullptr) continue;
    next.v[sub] = a.v + block + walk.offset * reading.v.row_bytes;
    reading.v.ask_scales(a, a.v + block, walk.offset);
  }
  return true;
}

/// Makes the positions of a tile that rows see available.
void bring_tile(const AttentionSplit& a, const Reading& reading, const SeenByRows& seen,
                int32_t tile, Walk& walk, TileData& data) {
  bool any = false;
  for (int sub = 0; sub < kSubTiles; ++sub, walk.step()) {
    const int32_t position = tile + sub * kSubTile;
    if (position + kSubTile <= seen.first || position > seen.last) {
      if (!any) continue;
      data.k_in_place[sub] = data.k_in_place[sub - 1];
      data.v_in_place[sub] = data.v_in_place[sub - 1];
      continue;
    }
    const int64_t block = walk.bytes();
    bring_k(a, reading.k, a.k + block, walk.offset, sub, data);
    bring_v(a, reading, (a.v == nullptr ? a.k : a.v) + block, walk.offset, sub, data);
    for (int before = any ? sub : 0; before < sub; ++before) {
      data.k_in_place[before] = data.k_in_place[sub];
      data.v_in_place[before] = data.v_in_place[sub];
    }
    any = true;
  }
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
  const Reading reading(a);
  TileData data = tile_data(a);
  float* l = a.scratch;
  const Work w{a, partial,          data.padded,      l,
               o, reading.scores(), reading.values(), reading.integers()};
  const SeenByRows seen = begin_rows(w);
  Next next{};
  next.k_row_bytes = reading.k.row_bytes;
  if (reading.k.type.integers()) {
    next.k_rows_shared = a.k_dim * reading.k.type.value_bits / (8 * reading.k.type.position_bytes);
  }
  next.v_value_bits = reading.v.type.value_bits;
  int32_t tile = seen.first / kSoftmaxTile * kSoftmaxTile;
  Walk here(a, tile);
  Walk ahead(a, tile + kSoftmaxTile);
  for (; tile <= seen.last; tile += kSoftmaxTile) {
    const bool ask = find_next(a, reading, tile, ahead, next);
    bring_tile(a, reading, seen, tile, here, data);
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
