#pragma once
// How attention reads K and V of each type whose products are those of f32, written in the
// vocabulary of kernels/cpu/simd. Two ways, which give the same values:
//  * 16 positions are converted to f32 in scratch memory, once for all rows;
//  * the chains of a tile read them in place and convert in registers. V that lies in K is then
//    transposed first, in its type.
// Values of types with scales are a number times the scale, exact in f32. Types whose products are
// those of integers (integers.h) are converted only where V lies in K.

#include "kernels/cpu/attention/tile.h"

namespace hearth::kernels {
namespace {

// ---- Numbers of each type ---------------------------------------------------------------------

struct NumberF32 {
  using T = float;
  static HEARTH_SIMD F load_lanes(const T* p) { return load(p); }
  static HEARTH_SIMD F load_some(const T* p, int n) { return load_partial(p, n); }
  static HEARTH_SIMD void store_lanes(T* p, F x) { store(p, x); }
};
struct NumberF16 {
  using T = uint16_t;
  static HEARTH_SIMD F load_lanes(const T* p) { return load_f16(p); }
  static HEARTH_SIMD F load_some(const T* p, int n) { return load_f16_partial(p, n); }
  static HEARTH_SIMD void store_lanes(T* p, F x) { store_f16(p, x); }
};
struct NumberBf16 {
  using T = uint16_t;
  static HEARTH_SIMD F load_lanes(const T* p) { return load_bf16(p); }
  static HEARTH_SIMD F load_some(const T* p, int n) { return load_bf16_partial(p, n); }
};

// ---- Scales -----------------------------------------------------------------------------------

constexpr float kFp8Unit = 0x1p120f;  // of scales of at most 255: kv_layout.h

/// Scales of 16 positions, times `unit`, to columns of (count, kSoftmaxTile).
void load_tile_scales(const char* stored, int32_t count, int32_t block_size, float unit,
                      float* out) {
  const auto* scales = reinterpret_cast<const uint16_t*>(stored);
  for (int32_t s = 0; s < count; ++s, scales += block_size, out += kSoftmaxTile) {
    for (int p = 0; p < kParts; ++p) {
      store(out + p * kLanes, mul(load_f16(scales + p * kLanes), set1(unit)));
    }
  }
}

// ---- 16 positions to f32 in scratch memory ----------------------------------------------------
// to_f32_k: K (k_dim, block_size) to columns of (k_dim, kSoftmaxTile). to_f32_v: V (block_size,
// v_dim) to rows of (16, padded), with zeros after v_dim. `offset` is the first position in its
// block; `scales` are columns of (num_scales(dims), kSoftmaxTile).

template <typename Number>
struct PlainTile {
  using T = typename Number::T;

  static void to_f32_k(const AttentionSplit& a, const char* block, int32_t offset, const float*,
                       float* out) {
    const T* from = reinterpret_cast<const T*>(block) + offset;
    for (int32_t d = 0; d < a.k_dim; ++d, from += a.block_size, out += kSoftmaxTile) {
      for (int p = 0; p < kParts; ++p) {
        store(out + p * kLanes, Number::load_lanes(from + p * kLanes));
      }
    }
  }

  static void to_f32_v(const AttentionSplit& a, const char* block, int32_t offset, const float*,
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

struct Fp8Tile {
  static void to_f32_k(const AttentionSplit& a, const char* block, int32_t offset,
                       const float* scales, float* out) {
    const auto* from = reinterpret_cast<const uint8_t*>(block) + offset;
    for (int32_t first = 0; first < a.k_dim; first += kScaleDims, scales += kSoftmaxTile) {
      F scale[kParts];
      for (int p = 0; p < kParts; ++p) scale[p] = load(scales + p * kLanes);
      const int32_t end = first + kScaleDims < a.k_dim ? first + kScaleDims : a.k_dim;
      for (int32_t d = first; d < end; ++d, from += a.block_size, out += kSoftmaxTile) {
        for (int p = 0; p < kParts; ++p) {
          store(out + p * kLanes, mul(load_e4m3(from + p * kLanes), scale[p]));
        }
      }
    }
  }

  static void to_f32_v(const AttentionSplit& a, const char* block, int32_t offset,
                       const float* scales, float* out) {
    const int32_t n = a.v_dim;
    const int64_t padded = padded_dims(n);
    const auto* from = reinterpret_cast<const uint8_t*>(block) + int64_t{offset} * n;
    for (int j = 0; j < kSubTile; ++j, from += n, out += padded) {
      const auto scale = [&](int32_t d) { return set1(scales[d / kScaleDims * kSoftmaxTile + j]); };
      int32_t d = 0;
      for (; d + kLanes <= n; d += kLanes) store(out + d, mul(load_e4m3(from + d), scale(d)));
      if (d < n) {
        uint8_t rest[16] = {};
        for (int32_t i = d; i < n; ++i) rest[i - d] = from[i];
        store(out + d, mul(load_e4m3(rest), scale(d)));
        d += kLanes;
      }
      for (; d < padded; d += kLanes) store(out + d, zero());
    }
  }
};

/// Codes of 4 dimensions that lie together, of 16 positions: bits `shift` + 8 e of each position's
/// word are dimension e of them.
void codes_to_f32(const char* words, int shift, int mask, float bias, const float* scales,
                  float* out) {
  for (int e = 0; e < 4; ++e) {
    for (int p = 0; p < kParts; ++p) {
      const I word = load_ints(reinterpret_cast<const int32_t*>(words) + p * kLanes);
      const F code = to_float(and_ints(shift_ints(word, shift + 8 * e), mask));
      store(out + e * kSoftmaxTile + p * kLanes,
            mul(sub(code, set1(bias)), load(scales + p * kLanes)));
    }
  }
}
// The front of K that is V; up to 7 more dimensions than v_dim.
void front_bytes_to_f32(const AttentionSplit& a, const char* block, int32_t offset,
                        const float* scales, float* out) {
  for (int32_t d = 0; d < a.v_dim; d += 4) {
    codes_to_f32(block + (int64_t{d} / 4 * a.block_size + offset) * 4, 0, 255, 128,
                 scales + d / kScaleDims * kSoftmaxTile, out + d * kSoftmaxTile);
  }
}
void front_nibbles_to_f32(const AttentionSplit& a, const char* block, int32_t offset,
                          const float* scales, float* out) {
  for (int32_t d = 0; d < a.v_dim; d += 8) {
    const char* words = block + (int64_t{d} / 8 * a.block_size + offset) * 4;
    const float* of = scales + d / kScaleDims * kSoftmaxTile;
    codes_to_f32(words, 0, 15, 8, of, out + d * kSoftmaxTile);
    codes_to_f32(words, 4, 15, 8, of, out + (d + 4) * kSoftmaxTile);
  }
}

/// V of 16 positions that lies in K: transposes the first v_dim rows of k, `stride` apart, to rows
/// of (16, padded), with zeros after v_dim.
template <typename Number>
void transpose_front(const typename Number::T* k, int64_t stride, int32_t v_dim, int64_t padded,
                     typename Number::T* out) {
  for (int64_t first = 0; first < padded; first += kLanes) {
    for (int p = 0; p < kParts; ++p) {
      F square[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        const bool there = first + i < v_dim;
        square[i] = there ? Number::load_lanes(k + (first + i) * stride + p * kLanes) : zero();
      }
      transpose(square);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        Number::store_lanes(out + (p * kLanes + i) * padded + first, square[i]);
      }
    }
  }
}
/// Of f16 in place: rows that are read as if they were in place.
void front_halves(const AttentionSplit& a, const char* block, int32_t offset, char* out) {
  transpose_front<NumberF16>(reinterpret_cast<const uint16_t*>(block) + offset, a.block_size,
                             a.v_dim, a.v_dim, reinterpret_cast<uint16_t*>(out));
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
  const uint16_t* k[kSubTiles];
  int64_t stride;
  explicit HEARTH_SIMD HalfK(const TileData& t) : stride(t.block_size) {
    for (int sub = 0; sub < kSubTiles; ++sub) {
      k[sub] = reinterpret_cast<const uint16_t*>(t.k_in_place[sub]);
    }
  }

  HEARTH_SIMD F lanes(int32_t d, int, int vec) const {
    return load_f16(k[vec / kParts] + d * stride + vec % kParts * kLanes);
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

struct Fp8K {
  static constexpr int kDims = 4;
  const TileData& t;
  explicit HEARTH_SIMD Fp8K(const TileData& tile) : t(tile) {}

  HEARTH_SIMD F lanes(int32_t d, int e, int vec) const {
    const auto* k = reinterpret_cast<const uint8_t*>(t.k_in_place[vec / kParts]);
    const F number = load_e4m3(k + int64_t{d + e} * t.block_size + vec % kParts * kLanes);
    return mul(number, load(t.k_scales + d / kScaleDims * kSoftmaxTile + vec * kLanes));
  }
};
struct Fp8V {
  const TileData& t;
  explicit HEARTH_SIMD Fp8V(const TileData& tile) : t(tile) {}

  template <int kVecs>
  HEARTH_SIMD F lanes(int j, int64_t first, int i) const {
    const auto* v = reinterpret_cast<const uint8_t*>(t.v_in_place[j / kSubTile]);
    const int64_t d = first + i * kLanes;
    return mul(load_e4m3(v + int64_t{j % kSubTile} * t.v_dim + d),
               set1(t.v_scales[d / kScaleDims * kSoftmaxTile + j]));
  }
};

}  // namespace
}  // namespace hearth::kernels
