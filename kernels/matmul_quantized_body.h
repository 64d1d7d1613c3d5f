#pragma once
// Dot products of quantized weights, written once over a simd_*.h vocabulary. A source says how one
// block's bytes, scales and mins come into registers: straight from a packed group (Packed, and
// Q8_0Source) or from unpacked scratch (Unpacked); the chain over blocks is the same code for all,
// so its bits are.

#include "kernels/matmul_kernels.h"
#include "kernels/simd_math.h"

namespace hearth::kernels {
namespace {

/// `run.operator()<width>()` for the width met; widths past kMost are not compiled.
template <int kMost = kMaxTile, typename Run>
HEARTH_SIMD void with_width(int32_t width, const Run& run) {
  switch (width) {
    case 1: return run.template operator()<1>();
    case 2: return run.template operator()<2>();
    case 4:
      if constexpr (kMost >= 4) return run.template operator()<4>();
      break;
    case 6:
      if constexpr (kMost == 6) return run.template operator()<6>();
      break;
    case 8:
      if constexpr (kMost >= 8) return run.template operator()<8>();
      break;
    case 12:
      if constexpr (kMost >= 12) return run.template operator()<12>();
      break;
  }
  __builtin_trap();
}

/// The arrays of one packed block of activations (matmul_kernels.h).
struct ActivationBlock {
  float* d;
  int32_t* minus_128_sum;
  int8_t* q;
  float* d_sum;
  int32_t* half_minus_128_sum;
  float* half_d_sum;

  HEARTH_SIMD ActivationBlock(const void* tile, int64_t b, int width) {
    char* block = const_cast<char*>(static_cast<const char*>(tile)) + b * width * kQuantBlockBytes;
    d = reinterpret_cast<float*>(block);
    minus_128_sum = reinterpret_cast<int32_t*>(d + width);
    q = reinterpret_cast<int8_t*>(minus_128_sum + width);
    d_sum = reinterpret_cast<float*>(q + kQuantBlock * width);
    half_minus_128_sum = reinterpret_cast<int32_t*>(d_sum + width);
    half_d_sum = reinterpret_cast<float*>(half_minus_128_sum + 2 * width);
  }
};

/// f(constant<0>), f(constant<1>), ..: shift counts of bytes must be constants.
template <int kValue>
struct Constant {
  static constexpr int value = kValue;
};
template <int kCount, int kNext = 0, typename F1>
HEARTH_SIMD void unrolled(const F1& f) {
  if constexpr (kNext < kCount) {
    f(Constant<kNext>{});
    unrolled<kCount, kNext + 1>(f);
  }
}

struct Q8_0Source {
  static constexpr int kSubs = 1;
  static constexpr bool kHasMin = false;
  static constexpr bool kWide = true;
  static constexpr int kOffset = 128;

  const uint8_t* bytes;
  const uint8_t* scales;
  int64_t block;

  HEARTH_SIMD Q8_0Source(const MatmulPanel& a, int32_t group, int64_t first)
      : bytes(a.weights + group * a.group_bytes + q8_bytes_at(first)),
        scales(a.weights + group * a.group_bytes + q8_scales_at(first)),
        block(first) {}
  HEARTH_SIMD void next() {
    bytes += block % 2 == 0 ? 512 : kQ8PairBytes - 512;
    scales += block % 2 == 0 ? 32 : kQ8PairBytes - 32;
    ++block;
  }
  template <int j>
  HEARTH_SIMD B code(int part) const {
    return load_raw(bytes + j * 64 + part * kLanes * 4);
  }
  HEARTH_SIMD void scale_and_min(int, int part, F* scale, F*) const {
    *scale = load_f16(reinterpret_cast<const uint16_t*>(scales) + part * kLanes);
  }
};

/// What unpack_panel writes. Narrow weights have one offset there, whatever their type's.
template <int kSubsOf, bool kHasMinOf, bool kWideOf>
struct Unpacked {
  static constexpr int kSubs = kSubsOf;
  static constexpr bool kHasMin = kHasMinOf;
  static constexpr bool kWide = kWideOf;
  static constexpr int kOffset = kHasMin ? 0 : kWide ? 128 : kNarrowOffset;
  static constexpr int kBytes = 512 + kSubs * (kHasMin ? 2 : 1) * 64;

  const uint8_t* at;

  HEARTH_SIMD Unpacked(const MatmulPanel& a, int32_t group, int64_t)
      : at(a.weights + group * a.group_bytes) {}
  HEARTH_SIMD void next() { at += kBytes; }
  template <int j>
  HEARTH_SIMD B code(int part) const {
    return load_raw(at + j * 64 + part * kLanes * 4);
  }
  HEARTH_SIMD void scale_and_min(int sub, int part, F* scale, F* min) const {
    const auto* floats = reinterpret_cast<const float*>(at + 512) + part * kLanes;
    *scale = load(floats + sub * 16);
    if constexpr (kHasMin) *min = load(floats + (kSubs + sub) * 16);
  }
};

/// A group as quant_layout.h describes it.
template <DType kType>
struct Packed {
  static constexpr QuantLayout kLayout = quant_layout(kType);
  static constexpr int kSubs = kLayout.subs;
  static constexpr bool kHasMin = kLayout.has_min;
  static constexpr bool kWide = kLayout.wide();
  static constexpr int kOffset = kLayout.offset;

  const uint8_t* head;
  const uint8_t* body;
  const uint8_t* planes;
  int sub_block;  ///< of a block of 256: which 32

  HEARTH_SIMD Packed(const MatmulPanel& a, int32_t group, int64_t first) {
    const uint8_t* packed = a.weights + group * a.group_bytes;
    const int64_t block = first * kQuantBlock / kLayout.block;
    head = packed + block * kLayout.head_bytes;
    body = packed + kLayout.bodies_at(a.cols) + block * kLayout.body_bytes();
    sub_block = kLayout.block == kQuantBlock ? 0 : static_cast<int>(first % 8);
    planes = body + sub_block * kLayout.plane_bytes();
  }
  HEARTH_SIMD void next() {
    planes += kLayout.plane_bytes();
    if (kLayout.block == kQuantBlock || ++sub_block == 8) {
      sub_block = 0;
      head += kLayout.head_bytes;
      body += kLayout.body_bytes();
      planes = body;
    }
  }

  /// Inputs 4 j .. 4 j + 3 as weight + offset.
  template <int j>
  HEARTH_SIMD B code(int part) const {
    const uint8_t* at = planes + part * kLanes * 4;
    B code;
    if constexpr (kLayout.nibbles) {
      const B raw = load_raw(at + j % 4 * 64);
      code = j < 4 ? and_bytes(raw, 15) : and_bytes(shift_bytes<4>(raw), 15);
      at += 256;
    }
    if constexpr (kLayout.twos) {
      constexpr int kTo = kLayout.nibbles ? 4 : 0;
      const B two = and_bytes(shift_bytes<j % 4 * 2 - kTo>(load_raw(at + j / 4 * 64)), 3 << kTo);
      code = kLayout.nibbles ? or_bytes(code, two) : two;
      at += 128;
    }
    if constexpr (kLayout.ones) {
      constexpr int kTo = kLayout.nibbles ? 4 : 2;
      code = or_bytes(code, and_bytes(shift_bytes<j - kTo>(load_raw(at)), 1 << kTo));
    }
    if constexpr (kLayout.codebook == Codebook::kIq4) code = lookup(code, kIq4Plus128);
    if constexpr (kLayout.codebook == Codebook::kFp4) code = lookup(code, kFp4Plus16);
    return code;
  }

  HEARTH_SIMD void scale_and_min(int sub, int part, F* scale, F* min) const {
    const int lanes = part * kLanes;
    const auto* halves = reinterpret_cast<const uint16_t*>(head) + lanes;
    const uint8_t* scales = body + 8 * kLayout.plane_bytes() + lanes;
    if constexpr (kType == DType::kMXFP4) {
      *scale = load_e8m0(head + lanes);
      return;
    }
    const F d = load_f16(halves);
    if constexpr (kLayout.block == kQuantBlock) {
      *scale = d;
      if constexpr (kHasMin) *min = load_f16(halves + 16);
      return;
    }
    const int b = sub_block;
    if constexpr (kLayout.sub_scales == SubScales::kSigned) {
      *scale = mul(d, to_float(load_i8(scales + (2 * b + sub) * 16)));
    } else if constexpr (kLayout.sub_scales == SubScales::kNibbles) {
      const I both = load_u8(scales + (2 * b + sub) * 16);
      *scale = mul(d, to_float(and_ints(both, 15)));
      *min = minus_product(load_f16(halves + 16), to_float(shift_ints(both, 4)));
    } else if constexpr (kLayout.sub_scales == SubScales::kOneSix) {
      const I low = and_ints(shift_ints(load_u8(scales + b / 2 * 16), b % 2 * 4), 15);
      const I high = and_ints(shift_ints(load_u8(head + 32 + b / 4 * 16 + lanes), b % 4 * 2), 3);
      *scale = mul(d, to_float(minus_32(or_ints(low, high, 4))));
    } else if constexpr (kHasMin) {  // kTwoSix: scale and min
      const I low = load_u8(scales + b * 16);
      const I high = shift_ints(load_u8(scales + 128 + b / 2 * 16), b % 2 * 4);
      const I first_six = or_ints(and_ints(low, 15), and_ints(high, 3), 4);
      const I second_six = or_ints(shift_ints(low, 4), and_ints(high, 12), 2);
      *scale = mul(d, to_float(first_six));
      *min = minus_product(load_f16(halves + 16), to_float(second_six));
    } else {  // kTwoSix: scales of both halves
      const I low = shift_ints(load_u8(scales + b * 16), 4 * sub);
      const I high = shift_ints(load_u8(scales + 128 + b / 2 * 16), b % 2 * 4 + 2 * sub);
      *scale = mul(d, to_float(minus_32(or_ints(and_ints(low, 15), and_ints(high, 3), 4))));
    }
  }

  static constexpr auto kIq4Plus128 = [] {
    CodeTable table{};
    for (int i = 0; i < 16; ++i) table.values[i] = static_cast<uint8_t>(kIq4Values[i] + 128);
    return table;
  }();
  static constexpr auto kFp4Plus16 = [] {
    CodeTable table{};
    for (int i = 0; i < 16; ++i) table.values[i] = static_cast<uint8_t>(kFp4Values[i] + 16);
    return table;
  }();
};

/// kWidth token rows times kTogether registers of outputs, from register `part` of a group.
template <typename Source, int kWidth, int kTogether>
HEARTH_SIMD void dot_quantized(const MatmulPanel& a, int32_t group, int part) {
  constexpr int kSubs = Source::kSubs;
  const int64_t first_block = a.first / kQuantBlock;
  Source source(a, group, first_block);
  float* sums = a.sums + static_cast<int64_t>(group) * kWidth * 16 + part * kLanes;
  F acc[kTogether][kWidth];
#pragma GCC unroll 2
  for (int p = 0; p < kTogether; ++p) {
#pragma GCC unroll 16
    for (int t = 0; t < kWidth; ++t) {
      acc[p][t] = a.first == 0 ? zero() : load(sums + 16 * t + p * kLanes);
    }
  }
  for (int64_t b = first_block; b < a.last / kQuantBlock; ++b) {
    const ActivationBlock x(a.tile, b, kWidth);
#pragma GCC unroll 2
    for (int s = 0; s < kSubs; ++s) {
      const int32_t* start = kSubs == 1 ? x.minus_128_sum : x.half_minus_128_sum + s * kWidth;
      I sum[kTogether][kWidth];
#pragma GCC unroll 2
      for (int p = 0; p < kTogether; ++p) {
#pragma GCC unroll 16
        for (int t = 0; t < kWidth; ++t) {
          sum[p][t] = dot_start<Source::kOffset, Source::kWide>(start[t]);
        }
      }
      unrolled<8 / kSubs>([&](auto step) HEARTH_SIMD_LAMBDA {
        // Both nibbles of a byte one after the other.
        constexpr int i = decltype(step)::value;
        constexpr int kPaired = i % 2 * 4 + i / 2;
        const auto use = [&](auto which) HEARTH_SIMD_LAMBDA {
          constexpr int j = decltype(which)::value;
#pragma GCC unroll 2
          for (int p = 0; p < kTogether; ++p) {
            const auto w = dot_operand<Source::kWide>(source.template code<j>(part + p));
#pragma GCC unroll 16
            for (int t = 0; t < kWidth; ++t) {
              sum[p][t] = dot4(sum[p][t], w, load_four(x.q + (j * kWidth + t) * 4));
            }
          }
        };
        if constexpr (kSubs == 1) {
          use(Constant<kPaired>{});
        } else if (s == 0) {
          use(Constant<i>{});
        } else {
          use(Constant<4 + i>{});
        }
      });
#pragma GCC unroll 2
      for (int p = 0; p < kTogether; ++p) {
        F scale;
        F min;
        source.scale_and_min(s, part + p, &scale, &min);
#pragma GCC unroll 16
        for (int t = 0; t < kWidth; ++t) {
          acc[p][t] = fma(to_float(sum[p][t]), mul(set1(x.d[t]), scale), acc[p][t]);
        }
        if constexpr (Source::kHasMin) {
          const float* d_sum = kSubs == 1 ? x.d_sum : x.half_d_sum + s * kWidth;
#pragma GCC unroll 16
          for (int t = 0; t < kWidth; ++t) acc[p][t] = fma(set1(d_sum[t]), min, acc[p][t]);
        }
      }
    }
    source.next();
  }
#pragma GCC unroll 2
  for (int p = 0; p < kTogether; ++p) {
#pragma GCC unroll 16
    for (int t = 0; t < kWidth; ++t) store(sums + 16 * t + p * kLanes, acc[p][t]);
  }
}

template <typename Source, int kMost = kMaxTile>
void matmul_quantized(const MatmulPanel& a) {
  with_width<kMost>(a.width, [&]<int kWidth>() {
    // One pass over a group where registers allow: half cache lines twice are memory twice.
    constexpr int kTogether = kParts == 2 && kWidth <= 2 ? 2 : 1;
    for (int32_t g = 0; g < a.num_groups; ++g) {
      for (int part = 0; part < kParts; part += kTogether) {
        dot_quantized<Source, kWidth, kTogether>(a, g, part);
      }
    }
  });
}

template <DType kType>
void unpack_panel(const UnpackPanel& a) {
  using From = Packed<kType>;
  constexpr int kShift =
      From::kHasMin || From::kWide ? 0 : kNarrowOffset - From::kOffset;  // of the bytes' offset
  uint8_t* out = a.out;
  const MatmulPanel panel{.weights = a.weights,
                          .group_bytes = a.group_bytes,
                          .num_groups = a.num_groups,
                          .tile = nullptr,
                          .width = 0,
                          .cols = a.cols,
                          .first = a.first,
                          .last = a.last,
                          .sums = nullptr};
  for (int32_t g = 0; g < a.num_groups; ++g) {
    From source(panel, g, a.first / kQuantBlock);
    for (int64_t b = a.first / kQuantBlock; b < a.last / kQuantBlock; ++b) {
      for (int part = 0; part < kParts; ++part) {
        unrolled<8>([&](auto step) HEARTH_SIMD_LAMBDA {
          constexpr int j = decltype(step)::value;
          const B code = source.template code<j>(part);
          store_raw(out + j * 64 + part * kLanes * 4, kShift == 0 ? code : add_bytes(code, kShift));
        });
        auto* floats = reinterpret_cast<float*>(out + 512) + part * kLanes;
        for (int s = 0; s < From::kSubs; ++s) {
          F scale;
          F min;
          source.scale_and_min(s, part, &scale, &min);
          store(floats + s * 16, scale);
          if constexpr (From::kHasMin) store(floats + (From::kSubs + s) * 16, min);
        }
      }
      source.next();
      out += unpacked_block_bytes(From::kLayout);
    }
  }
}

template <DType kType>
constexpr QuantKernels quant_kernels() {
  using From = Packed<kType>;
  constexpr int kMost = kDirectWidth < kMaxTile ? kDirectWidth : kMaxTile;
  return {matmul_quantized<From, kMost>, unpack_panel<kType>,
          matmul_quantized<Unpacked<From::kSubs, From::kHasMin, From::kWide>>};
}

template <int kIndex = 0>
constexpr void set_quant_kernels(QuantKernels* kernels) {
  if constexpr (kIndex < kNumQuantTypes) {
    kernels[kIndex] = quant_kernels<kQuantTypes[kIndex]>();
    set_quant_kernels<kIndex + 1>(kernels);
  }
}

}  // namespace
}  // namespace hearth::kernels
