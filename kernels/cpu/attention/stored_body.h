#pragma once
// Stored K and V as f32, of 16 positions of a block. bounds() writes bits of floats that are not
// negative, one per position. K: value(d) has kLanes positions, the part-th of them, after
// start(part, d) for each 32 dimensions. V: value(j, d) has kLanes dimensions of position j;
// last(j, d) those up to the last dimension, then zeros.

#include "kernels/cpu/attention/shared_body.h"

namespace hearth::kernels {
namespace {

template <typename Load>
struct Halves {
  static constexpr int64_t kValueBytes = 2;
  static constexpr bool kInPlace = true;
  static HEARTH_SIMD F lanes(const uint16_t* p) { return Load::lanes(p); }

  static HEARTH_SIMD void bounds_of(const uint16_t* largest, int32_t* bounds) {
    for (int p = 0; p < kParts; ++p) {
      store_ints(bounds + p * kLanes, magnitude(Load::lanes(largest + p * kLanes)));
    }
  }

  struct K {
    const uint16_t* first;
    const uint16_t* at;
    int64_t block_size;

    HEARTH_SIMD K(const AttentionSplit& a, const char* block, int32_t offset)
        : first(reinterpret_cast<const uint16_t*>(block) + offset),
          at(first),
          block_size(a.block_size) {}
    HEARTH_SIMD void bounds(int32_t begin, int32_t end, int32_t* bounds) const {
      Halves16 most = no_halves();
#pragma GCC unroll 8
      for (int32_t d = begin; d < end; ++d) most = max_halves(most, first + d * block_size);
      alignas(32) uint16_t largest[16];
      store_halves(largest, most);
      bounds_of(largest, bounds);
    }
    HEARTH_SIMD void start(int part, int32_t) { at = first + part * kLanes; }
    HEARTH_SIMD F value(int32_t d) const { return Load::lanes(at + d * block_size); }
  };

  struct V {
    const uint16_t* at;
    int32_t dims;

    HEARTH_SIMD V(const AttentionSplit& a, const char* block, int32_t offset, float*)
        : at(reinterpret_cast<const uint16_t*>(block) + int64_t{offset} * a.v_dim), dims(a.v_dim) {}
    HEARTH_SIMD void bounds(int32_t* bounds) const {
      alignas(32) uint16_t largest[kSubTile];
      for (int j = 0; j < kSubTile; ++j) {
        const uint16_t* row = at + int64_t{j} * dims;
        Halves16 most = no_halves();
        int32_t d = 0;
        for (; d + 16 <= dims; d += 16) most = max_halves(most, row + d);
        largest[j] = largest_half(most);
        for (; d < dims; ++d) {
          const uint16_t bits = row[d] & 0x7fff;
          largest[j] = bits > largest[j] ? bits : largest[j];
        }
      }
      bounds_of(largest, bounds);
    }
    HEARTH_SIMD F value(int j, int32_t d) const { return Load::lanes(at + int64_t{j} * dims + d); }
    HEARTH_SIMD F last(int j, int32_t d) const {
      return Load::some(at + int64_t{j} * dims + d, dims - d);
    }
  };
};
struct LoadF16 {
  static HEARTH_SIMD F lanes(const uint16_t* p) { return load_f16(p); }
  static HEARTH_SIMD F some(const uint16_t* p, int n) { return load_f16_partial(p, n); }
};
struct LoadBf16 {
  static HEARTH_SIMD F lanes(const uint16_t* p) { return load_bf16(p); }
  static HEARTH_SIMD F some(const uint16_t* p, int n) { return load_bf16_partial(p, n); }
};

/// Integers times a scale per 32 of them, exact in f32.
struct Q8 {
  static constexpr int64_t kValueBytes = 1;
  static constexpr bool kInPlace = false;

  struct K {
    const uint8_t* first;
    const uint8_t* at;
    const uint16_t* scales;
    int64_t block_size;
    F scale;

    HEARTH_SIMD K(const AttentionSplit& a, const char* block, int32_t offset)
        : first(reinterpret_cast<const uint8_t*>(block) + offset),
          at(first),
          scales(reinterpret_cast<const uint16_t*>(block + int64_t{a.k_dim} * a.block_size) +
                 offset),
          block_size(a.block_size),
          scale(zero()) {}
    HEARTH_SIMD void bounds(int32_t begin, int32_t end, int32_t* bounds) const {
      for (int p = 0; p < kParts; ++p) {
        I most = magnitude(zero());
        for (int32_t d = begin; d < end; d += 32) {
          const F largest = load_f16(scales + d / 32 * block_size + p * kLanes);
          most = max_ints(most, magnitude(mul(largest, set1(127.0f))));
        }
        store_ints(bounds + p * kLanes, most);
      }
    }
    HEARTH_SIMD void start(int part, int32_t d) {
      at = first + part * kLanes;
      scale = load_f16(scales + d / 32 * block_size + part * kLanes);
    }
    HEARTH_SIMD F value(int32_t d) const {
      return mul(to_float(load_i8(at + d * block_size)), scale);
    }
  };

  struct V {
    const uint8_t* at;
    const float* scales;  ///< (16, num_scales)
    int32_t dims;
    int32_t num_scales;

    HEARTH_SIMD V(const AttentionSplit& a, const char* block, int32_t offset, float* scratch)
        : at(reinterpret_cast<const uint8_t*>(block) + int64_t{offset} * a.v_dim),
          scales(scratch),
          dims(a.v_dim),
          num_scales((a.v_dim + 31) / 32) {
      const auto* stored =
          reinterpret_cast<const uint16_t*>(block + int64_t{a.block_size} * a.v_dim) +
          int64_t{offset} * num_scales;
      for (int32_t i = 0; i < kSubTile * num_scales; i += kLanes) {
        store(scratch + i, load_f16(stored + i));
      }
    }
    HEARTH_SIMD void bounds(int32_t* bounds) const {
      for (int j = 0; j < kSubTile; ++j) {
        bounds[j] = 0;
        for (int32_t s = 0; s < num_scales; ++s) {
          const float largest = scales[j * num_scales + s] * 127.0f;
          const int32_t bits = __builtin_bit_cast(int32_t, largest) & 0x7fffffff;
          bounds[j] = bits > bounds[j] ? bits : bounds[j];
        }
      }
    }
    HEARTH_SIMD F value(int j, int32_t d) const { return scaled(at + int64_t{j} * dims + d, j, d); }
    HEARTH_SIMD F last(int j, int32_t d) const {
      uint8_t rest[16] = {};
      for (int32_t i = d; i < dims; ++i) rest[i - d] = at[int64_t{j} * dims + i];
      return scaled(rest, j, d);
    }
    HEARTH_SIMD F scaled(const uint8_t* p, int j, int32_t d) const {
      return mul(to_float(load_i8(p)), set1(scales[j * num_scales + d / 32]));
    }
  };
};

}  // namespace
}  // namespace hearth::kernels
