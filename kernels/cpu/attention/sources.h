#pragma once
// How attention reads K and V of each type, written in the vocabulary of kernels/cpu/simd. Two
// ways, which give the same values:
//  * 16 positions are converted to f32 in scratch memory, once for all rows;
//  * for few rows, the chains of a tile read them in place and convert in registers.
// Values of types with scales are a number times the scale, exact in f32.

#include "kernels/cpu/attention/kernels.h"
#include "kernels/cpu/simd/math.h"

namespace hearth::kernels {
namespace {

constexpr int kSubTile = 16;  // positions that are certain to lie in one block
constexpr int kSubTiles = kSoftmaxTile / kSubTile;
constexpr int kScaleDims = 32;
constexpr int kPairBytes = kScaleDims / 2;  // of 32 codes of 4 bits

constexpr int32_t num_scales(int32_t dims) { return (dims + kScaleDims - 1) / kScaleDims; }

/// What the chains of a tile read.
struct TileData {
  float* k;  ///< in scratch memory: (k_dim, kSoftmaxTile)
  float* v;  ///< (kSoftmaxTile, padded)
  int64_t padded;
  // In place. Sub-tiles that no row sees point to one that is seen; their scales are arbitrary.
  const char* k_in_place[kSubTiles];
  const char* v_in_place[kSubTiles];
  float* k_scales;  ///< (num_scales(k_dim), kSoftmaxTile)
  float* v_scales;  ///< (kSoftmaxTile, num_scales(v_dim))
  int32_t block_size;
  int32_t v_dim;
};

// ---- Numbers of each type ---------------------------------------------------------------------

struct NumberF32 {
  using T = float;
  static HEARTH_SIMD F load_lanes(const T* p) { return load(p); }
  static HEARTH_SIMD F load_some(const T* p, int n) { return load_partial(p, n); }
};
struct NumberF16 {
  using T = uint16_t;
  static HEARTH_SIMD F load_lanes(const T* p) { return load_f16(p); }
  static HEARTH_SIMD F load_some(const T* p, int n) { return load_f16_partial(p, n); }
};
struct NumberBf16 {
  using T = uint16_t;
  static HEARTH_SIMD F load_lanes(const T* p) { return load_bf16(p); }
  static HEARTH_SIMD F load_some(const T* p, int n) { return load_bf16_partial(p, n); }
};
/// Bytes that have scales, which become kUnit times as large.
struct NumberI8 {
  static constexpr bool kPairs = false;
  static constexpr float kUnit = 1;
  static HEARTH_SIMD F load_lanes(const uint8_t* p) { return to_float(load_i8(p)); }
};
struct NumberE4m3 {
  static constexpr bool kPairs = false;
  static constexpr float kUnit = 0x1p120f;  // of at most 255: kv_layout.h
  static HEARTH_SIMD F load_lanes(const uint8_t* p) { return load_e4m3(p); }
};
/// Pairs of codes in a byte.
struct NumberPairs {
  static constexpr bool kPairs = true;
  static constexpr float kUnit = 1;
};

// ---- Scales -----------------------------------------------------------------------------------

/// Bytes of the codes of `dims` values at one position.
template <typename Number>
constexpr int64_t code_bytes(int32_t dims) {
  return Number::kPairs ? int64_t{kPairBytes} * num_scales(dims) : dims;
}

template <typename Number>
HEARTH_SIMD F load_scales(const uint16_t* p) {
  if constexpr (Number::kUnit == 1) return load_f16(p);
  return mul(load_f16(p), set1(Number::kUnit));
}

/// K's scales of 16 positions, as f32, to columns of (scales, kSoftmaxTile).
template <typename Number>
void key_scales(const AttentionSplit& a, const char* block, int32_t offset, float* out) {
  const char* stored = block + a.block_size * code_bytes<Number>(a.k_dim);
  const auto* scales = reinterpret_cast<const uint16_t*>(stored) + offset;
  for (int32_t s = 0; s < num_scales(a.k_dim); ++s) {
    for (int p = 0; p < kParts; ++p) {
      store(out + p * kLanes, load_scales<Number>(scales + p * kLanes));
    }
    scales += a.block_size;
    out += kSoftmaxTile;
  }
}

/// V's scales of 16 positions, as f32: (16, scales).
template <typename Number>
void value_scales(const AttentionSplit& a, const char* block, int32_t offset, float* out) {
  const int32_t n = num_scales(a.v_dim);
  const char* stored = block + a.block_size * code_bytes<Number>(a.v_dim);
  const auto* scales = reinterpret_cast<const uint16_t*>(stored) + int64_t{offset} * n;
  for (int32_t i = 0; i < kSubTile * n; i += kLanes) {
    store(out + i, load_scales<Number>(scales + i));
  }
}

// ---- 16 positions to f32 in scratch memory ----------------------------------------------------
// to_f32_k: K (k_dim, block_size) to columns of (k_dim, kSoftmaxTile). to_f32_v: V (block_size,
// v_dim) to rows of (16, padded), with zeros after v_dim. `offset` is the first position in its
// block; `scales` has room for what key_scales or value_scales writes.

template <typename Number>
struct PlainTile {
  using T = typename Number::T;

  static void to_f32_k(const AttentionSplit& a, const char* block, int32_t offset, float*,
                       float* out) {
    const T* from = reinterpret_cast<const T*>(block) + offset;
    for (int32_t d = 0; d < a.k_dim; ++d, from += a.block_size, out += kSoftmaxTile) {
      for (int p = 0; p < kParts; ++p) {
        store(out + p * kLanes, Number::load_lanes(from + p * kLanes));
      }
    }
  }

  static void to_f32_v(const AttentionSplit& a, const char* block, int32_t offset, float*,
                       float* out) {
    const int32_t n = a.v_dim;
    const int64_t padded = padded_dims(n);
    const T* from = reinterpret_cast<const T*>(block) + int64_t{offset} * n;
    for (int j = 0; j < kSubTile; ++j, from += n, out += padded) {
      int32_t d = 0;
      for (; d + kLanes <= n; d += kLanes) store(out + d, Number::load_lanes(from + d));
      if (d < n) store(out + d, Number::load_some(from + d, n - d));
      for (d = (n + kLanes - 1) / kLanes * kLanes; d < padded; d += kLanes) store(out + d, zero());
    }
  }
};

template <typename Number>
struct ByteTile {
  static void to_f32_k(const AttentionSplit& a, const char* block, int32_t offset, float* scales,
                       float* out) {
    key_scales<Number>(a, block, offset, scales);
    const auto* from = reinterpret_cast<const uint8_t*>(block) + offset;
    for (int32_t first = 0; first < a.k_dim; first += kScaleDims, scales += kSoftmaxTile) {
      F scale[kParts];
      for (int p = 0; p < kParts; ++p) scale[p] = load(scales + p * kLanes);
      const int32_t end = first + kScaleDims < a.k_dim ? first + kScaleDims : a.k_dim;
      for (int32_t d = first; d < end; ++d, from += a.block_size, out += kSoftmaxTile) {
        for (int p = 0; p < kParts; ++p) {
          store(out + p * kLanes, mul(Number::load_lanes(from + p * kLanes), scale[p]));
        }
      }
    }
  }

  static void to_f32_v(const AttentionSplit& a, const char* block, int32_t offset, float* scales,
                       float* out) {
    value_scales<Number>(a, block, offset, scales);
    const int32_t n = a.v_dim;
    const int64_t padded = padded_dims(n);
    const auto* from = reinterpret_cast<const uint8_t*>(block) + int64_t{offset} * n;
    for (int j = 0; j < kSubTile; ++j, from += n, scales += num_scales(n), out += padded) {
      int32_t d = 0;
      for (; d + kLanes <= n; d += kLanes) {
        store(out + d, mul(Number::load_lanes(from + d), set1(scales[d / kScaleDims])));
      }
      if (d < n) {
        uint8_t rest[16] = {};
        for (int32_t i = d; i < n; ++i) rest[i - d] = from[i];
        store(out + d, mul(Number::load_lanes(rest), set1(scales[d / kScaleDims])));
        d += kLanes;
      }
      for (; d < padded; d += kLanes) store(out + d, zero());
    }
  }
};

/// Codes of 4 bits: the last ones of a head are stored up to the 32nd, as zeros.
struct PairTile {
  static void to_f32_k(const AttentionSplit& a, const char* block, int32_t offset, float* scales,
                       float* out) {
    key_scales<NumberPairs>(a, block, offset, scales);
    const auto* from = reinterpret_cast<const uint8_t*>(block) + offset;
    for (int32_t d = 0; d < a.k_dim; d += 2, from += a.block_size, out += 2 * kSoftmaxTile) {
      const float* scale = scales + d / kScaleDims * kSoftmaxTile;
      for (int p = 0; p < kParts; ++p) {
        const I pair = load_u8(from + p * kLanes);
        const F s = load(scale + p * kLanes);
        store(out + p * kLanes, mul(low_code(pair), s));
        if (d + 1 < a.k_dim) store(out + kSoftmaxTile + p * kLanes, mul(high_code(pair), s));
      }
    }
  }

  static void to_f32_v(const AttentionSplit& a, const char* block, int32_t offset, float* scales,
                       float* out) {
    value_scales<NumberPairs>(a, block, offset, scales);
    const int32_t n = num_scales(a.v_dim);
    const int64_t padded = padded_dims(a.v_dim);
    const auto* from = reinterpret_cast<const uint8_t*>(block) + int64_t{offset} * n * kPairBytes;
    for (int j = 0; j < kSubTile; ++j, scales += n, out += padded) {
      for (int32_t s = 0; s < n; ++s, from += kPairBytes) {
        float* to = out + s * kScaleDims;
        const bool whole = s * kScaleDims + kPairBytes < padded;
        const Levels numbers = levels(set1(scales[s]));
        for (int i = 0; i < kPairBytes; i += kLanes) {
          const I pair = load_u8(from + i);
          store(to + i, low_level(pair, numbers));
          if (whole) store(to + kPairBytes + i, high_level(pair, numbers));
        }
      }
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

// ---- Sources of the chains --------------------------------------------------------------------
// Of K, lanes(d, e, vec): dimension d + e, e below kDims, of kLanes positions, the vec-th such
// vector; d is a multiple of kDims, which divides k_dim. Of V, lanes<kVecs>(j, first, i): of
// position j the i-th of kVecs vectors of dimensions that start with `first`, a multiple of them
// all.

struct ScratchK {
  static constexpr int kDims = 1;
  const float* k;
  explicit HEARTH_SIMD ScratchK(const TileData& t) : k(t.k) {}

  HEARTH_SIMD F lanes(int32_t d, int, int vec) const {
    return load(k + d * kSoftmaxTile + vec * kLanes);
  }
};
struct ScratchV {
  const float* v;
  int64_t padded;
  explicit HEARTH_SIMD ScratchV(const TileData& t) : v(t.v), padded(t.padded) {}

  template <int kVecs>
  HEARTH_SIMD F lanes(int j, int64_t first, int i) const {
    return load(v + j * padded + first + i * kLanes);
  }
};

/// f16, read in place.
struct HalfK {
  static constexpr int kDims = 1;
  const TileData& t;
  explicit HEARTH_SIMD HalfK(const TileData& tile) : t(tile) {}

  HEARTH_SIMD F lanes(int32_t d, int, int vec) const {
    const auto* k = reinterpret_cast<const uint16_t*>(t.k_in_place[vec / kParts]);
    return load_f16(k + int64_t{d} * t.block_size + vec % kParts * kLanes);
  }
};
struct HalfV {
  const TileData& t;
  explicit HEARTH_SIMD HalfV(const TileData& tile) : t(tile) {}

  template <int kVecs>
  HEARTH_SIMD F lanes(int j, int64_t first, int i) const {
    const auto* v = reinterpret_cast<const uint16_t*>(t.v_in_place[j / kSubTile]);
    return load_f16(v + int64_t{j % kSubTile} * t.v_dim + first + i * kLanes);
  }
};

template <typename Number>
struct ByteK {
  static constexpr int kDims = 4;
  const TileData& t;
  explicit HEARTH_SIMD ByteK(const TileData& tile) : t(tile) {}

  HEARTH_SIMD F lanes(int32_t d, int e, int vec) const {
    const auto* k = reinterpret_cast<const uint8_t*>(t.k_in_place[vec / kParts]);
    const F number = Number::load_lanes(k + int64_t{d + e} * t.block_size + vec % kParts * kLanes);
    return mul(number, load(t.k_scales + d / kScaleDims * kSoftmaxTile + vec * kLanes));
  }
};
template <typename Number>
struct ByteV {
  const TileData& t;
  int32_t scales;
  explicit HEARTH_SIMD ByteV(const TileData& tile) : t(tile), scales(num_scales(tile.v_dim)) {}

  template <int kVecs>
  HEARTH_SIMD F lanes(int j, int64_t first, int i) const {
    const auto* v = reinterpret_cast<const uint8_t*>(t.v_in_place[j / kSubTile]);
    const int64_t d = first + i * kLanes;
    return mul(Number::load_lanes(v + int64_t{j % kSubTile} * t.v_dim + d),
               set1(t.v_scales[int64_t{j} * scales + d / kScaleDims]));
  }
};

struct PairK {
  static constexpr int kDims = 4;
  const TileData& t;
  explicit HEARTH_SIMD PairK(const TileData& tile) : t(tile) {}

  HEARTH_SIMD F lanes(int32_t d, int e, int vec) const {
    const auto* k = reinterpret_cast<const uint8_t*>(t.k_in_place[vec / kParts]);
    const I pair = load_u8(k + int64_t{d / 2 + e / 2} * t.block_size + vec % kParts * kLanes);
    const F number = e % 2 == 0 ? low_code(pair) : high_code(pair);
    return mul(number, load(t.k_scales + d / kScaleDims * kSoftmaxTile + vec * kLanes));
  }
};
struct PairV {
  const TileData& t;
  int32_t scales;
  explicit HEARTH_SIMD PairV(const TileData& tile) : t(tile), scales(num_scales(tile.v_dim)) {}

  template <int kVecs>
  HEARTH_SIMD F lanes(int j, int64_t first, int i) const {
    const int64_t d = first + i * kLanes;
    const int64_t scale = d / kScaleDims;
    const auto* v = reinterpret_cast<const uint8_t*>(t.v_in_place[j / kSubTile]) +
                    (int64_t{j % kSubTile} * scales + scale) * kPairBytes;
    // Known at compile time if `first` is a multiple of 32.
    const bool upper =
        kVecs * kLanes % kScaleDims == 0 ? (i * kLanes & kPairBytes) != 0 : (d & kPairBytes) != 0;
    const I pair = load_u8(v + d % kPairBytes);
    const Levels numbers = levels(set1(t.v_scales[int64_t{j} * scales + scale]));
    return upper ? high_level(pair, numbers) : low_level(pair, numbers);
  }
};

}  // namespace
}  // namespace hearth::kernels
