#pragma once
// Dot products of quantized weights, written once against the simd_*.h vocabulary. A source loads
// one block's bytes, scales and mins into registers: straight from a packed group (Packed and
// Q8_0Source) or from unpacked scratch (Unpacked). The chain over blocks is the same code for all
// of them, so the bits are the same.

#include "kernels/cpu/matmul/kernels.h"
#include "kernels/cpu/simd/math.h"

namespace hearth::kernels {
namespace {

/// Calls `run.operator()<width>()` for the given width; widths above kMaxTile are not compiled.
template <typename Run>
HEARTH_SIMD void with_width(int32_t width, const Run& run) {
  switch (width) {
    case 1: return run.template operator()<1>();
    case 2: return run.template operator()<2>();
    case 4:
      if constexpr (kMaxTile >= 4) return run.template operator()<4>();
      break;
    case 6:
      if constexpr (kMaxTile >= 6) return run.template operator()<6>();
      break;
    case 8:
      if constexpr (kMaxTile >= 8) return run.template operator()<8>();
      break;
  }
  __builtin_trap();
}

/// The arrays of one packed block of activations (kernels/cpu/matmul/kernels.h).
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

/// Calls f(constant<0>), f(constant<1>), ..: shift counts of bytes must be constants.
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
  static constexpr int kLargest = 255;

  const uint8_t* bytes;
  const uint8_t* scales;
  int64_t block;

  HEARTH_SIMD Q8_0Source(const uint8_t* group, int64_t first)
      : bytes(group + q8_bytes_at(first)), scales(group + q8_scales_at(first)), block(first) {}
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

/// Steps of 4 inputs whose products by weights of at most `largest`, offset included, may be added
/// up in 16 bits: a pair of inputs adds at most 2 * 127 * largest. 1: none are.
constexpr int dot_run(int largest) {
  if (!kPairSums) return 1;
  return largest > 64 ? 1 : largest > 32 ? 2 : largest > 16 ? 4 : 8;
}

/// Types with the same bound of unpacked weights share their code: their runs are as long.
constexpr int kAnyWeight = 255;
constexpr int unpacked_bound(const QuantLayout& layout) {
  for (const int bound : {16, 32, 64}) {
    const int offset = layout.has_min ? 0 : bound / 2;
    const int largest = largest_weight(layout) - layout.offset + offset;
    const bool fits = layout.offset <= offset && largest <= bound;
    if (dot_run(bound) > 1 && !layout.wide() && fits) return bound;
  }
  return kAnyWeight;
}

/// Reads what unpack_panel writes.
template <int kSubsOf, bool kHasMinOf, bool kWideOf, int kBound>
struct Unpacked {
  static constexpr int kSubs = kSubsOf;
  static constexpr bool kHasMin = kHasMinOf;
  static constexpr bool kWide = kWideOf;
  static constexpr int kLargest = kBound;
  static constexpr int kOffset = kHasMin                ? 0
                                 : kWide                ? 128
                                 : kBound == kAnyWeight ? kNarrowOffset
                                                        : kBound / 2;
  static constexpr int kBytes = 512 + kSubs * (kHasMin ? 2 : 1) * 64;

  const uint8_t* at;

  HEARTH_SIMD Unpacked(const uint8_t* group, int64_t) : at(group) {}
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
  static constexpr int kLargest = largest_weight(kLayout);
  static constexpr int kBlocks = kLayout.block / kQuantBlock;
  static constexpr int kPerLine = kLayout.blocks_per_line();

  const uint8_t* head;
  const uint8_t* body;
  const uint8_t* planes;
  int sub_block;  ///< which 32 inputs of a stored block
  int of_line;    ///< which block of those whose heads share a line

  HEARTH_SIMD Packed(const uint8_t* group, int64_t first) {
    const auto block_32 = static_cast<int>(first);
    const int block = block_32 / kBlocks;
    head = group + kLayout.head_at(block);
    body = group + kLayout.body_at(block);
    sub_block = block_32 % kBlocks;
    of_line = block % kPerLine;
    planes = body + sub_block * kLayout.plane_bytes();
  }
  HEARTH_SIMD void next() {
    planes += kLayout.plane_bytes();
    if (kBlocks > 1 && ++sub_block < kBlocks) return;
    sub_block = 0;
    head += kLayout.head_bytes;
    body += kLayout.body_bytes();
    if (kPerLine == 1 || ++of_line == kPerLine) {
      of_line = 0;
      head += kPerLine * kLayout.body_bytes();
      body += QuantLayout::kHeadLine;
    }
    planes = body;
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
    if constexpr (kType == DType::kIQ1_M) code = or_bytes(code, eighths<j>(part));
    if constexpr (kLayout.codebook != Codebook::kNone) code = lookup(code, kValuesPlusOffset);
    return code;
  }

  HEARTH_SIMD void scale_and_min(int sub, int part, F* scale, F* min) const {
    const int lanes = part * kLanes;
    const auto* halves = reinterpret_cast<const uint16_t*>(head) + lanes;
    const uint8_t* scales = body + kBlocks * kLayout.plane_bytes() + lanes;
    if constexpr (kType == DType::kMXFP4) {
      *scale = load_e8m0(head + lanes);
      return;
    }
    if constexpr (kLayout.sub_scales == SubScales::kUe4m3) {
      *scale = load_ue4m3(head + (2 * sub_block + sub) * 16 + lanes);
      return;
    }
    const F d = load_f16(halves);
    if constexpr (kLayout.sub_scales == SubScales::kNone) {
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
    } else if constexpr (kType == DType::kIQ1_S) {
      const I nibble = shift_ints(load_u8(scales + b / 2 * 16), b % 2 * 4);
      *scale = mul(d, odd(and_ints(nibble, 7)));
      // Codes are one more than levels; this and the eighths are -7/8 or -9/8.
      const F minus = to_float(and_ints(shift_ints(nibble, 3), 1));
      *min = mul(*scale, fma(minus, set1(-0.25f), set1(-0.875f)));
    } else if constexpr (kLayout.sub_scales == SubScales::kOneFour) {
      const I nibble = and_ints(shift_ints(load_u8(scales + b / 2 * 16), b % 2 * 4), 15);
      *scale = mul(mul(d, set1(scale_unit(kType))), odd(nibble));
    } else if constexpr (kLayout.sub_scales == SubScales::kTwoFour) {
      const I nibble = and_ints(shift_ints(load_u8(scales + b * 16), 4 * sub), 15);
      *scale = mul(mul(d, set1(scale_unit(kType))), odd(nibble));
    } else if constexpr (kType == DType::kIQ1_M) {
      const I three = and_ints(shift_ints(load_u8(scales + b * 16), 4 * sub), 7);
      *scale = mul(mul(d, set1(scale_unit(kType))), odd(three));
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

  static constexpr auto kValuesPlusOffset = [] {
    CodeTable table{};
    for (int i = 0; i < 16; ++i) {
      table.values[i] = static_cast<uint8_t>(codebook_values(kLayout.codebook)[i] + kOffset);
    }
    return table;
  }();

 private:
  /// What is above the levels of inputs 4 j .. 4 j + 3 of IQ1_M.
  template <int j>
  HEARTH_SIMD B eighths(int part) const {
    const uint8_t* scales = body + kBlocks * kLayout.plane_bytes() + part * kLanes;
    if constexpr (j % 4 < 2) {
      return where_set<j / 4 * 4 + 3>(load_u8(scales + sub_block * 16), 4);
    } else {
      const I high = load_u8(scales + 128 + sub_block / 2 * 16);
      return where_set<j / 4 * 2>(shift_ints(high, sub_block % 2 * 4), 4);
    }
  }
  /// 2 s + 1.
  static HEARTH_SIMD F odd(I s) { return fma(to_float(s), set1(2), set1(1)); }
};

/// Prefetches a block's share of `Ahead` for kGroups groups. Lines needed later go to L2, because
/// L1 would evict them too soon.
template <int kGroups>
struct Fetch {
  const uint8_t* at;
  int64_t group_bytes;
  int64_t block_bytes;
  int32_t lines;
  bool soon;

  HEARTH_SIMD Fetch(const Ahead& ahead, int32_t group, bool wanted)
      : at(ahead.at + group * ahead.group_bytes),
        group_bytes(ahead.group_bytes),
        block_bytes(ahead.block_bytes),
        lines(wanted ? ahead.lines : 0),
        soon(ahead.soon) {}
  HEARTH_SIMD void block() {
    for (int32_t i = 0; i < lines; ++i) {
#pragma GCC unroll 2
      for (int g = 0; g < kGroups; ++g) {
        if (soon) {
          __builtin_prefetch(at + 64 * i + g * group_bytes, 0, 3);
        } else {
          __builtin_prefetch(at + 64 * i + g * group_bytes, 0, 2);
        }
      }
    }
    at += block_bytes;
  }
};

/// Registers of outputs that share the loads of kWidth rows of activations. One row waits for
/// memory, which is read fastest in order: one group at a time.
constexpr int dot_columns(int width) {
  if (width == 1 && kParts == 1) return 1;
  if (kParts == 4 && 4 * width <= kDotChains) return 4;
  return 2 * width <= kDotChains ? 2 : 1;
}

/// The groups that these registers span.
constexpr int dot_groups(int columns) { return (columns + kParts - 1) / kParts; }

/// The integer sums of sub-block s of a block: of register c of outputs, from `part` on, and row t.
template <typename Source, int kColumns, int kWidth>
HEARTH_SIMD void sum_products(const Source* sources, const ActivationBlock& x, int s, int part,
                              Sum (&sum)[kColumns][kWidth]) {
  constexpr int kSubs = Source::kSubs;
  constexpr int kSteps = 8 / kSubs;
  constexpr int kLongest = Source::kWide ? 1 : dot_run(Source::kLargest);
  constexpr int kRun = kLongest < kSteps ? kLongest : kSteps;
  const int32_t* start = kSubs == 1 ? x.minus_128_sum : x.half_minus_128_sum + s * kWidth;
  const auto begin = [&]() HEARTH_SIMD_LAMBDA {
#pragma GCC unroll 16
    for (int t = 0; t < kWidth; ++t) {
      const Sum of_row = dot_start<Source::kOffset, Source::kWide>(start[t]);
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) sum[c][t] = of_row;
    }
  };
  if constexpr (kRun < kSteps) begin();
  [[maybe_unused]] B run[kColumns][kWidth];
  unrolled<kSteps>([&](auto step) HEARTH_SIMD_LAMBDA {
    // Use both nibbles of a byte one after the other.
    constexpr int i = decltype(step)::value;
    // No sooner, as sums in registers would leave none for the run.
    if constexpr (kRun == kSteps && i == kSteps - 1) begin();
    constexpr int kPaired = i % 2 * 4 + i / 2;
    const auto use = [&](auto which) HEARTH_SIMD_LAMBDA {
      constexpr int j = decltype(which)::value;
      decltype(dot_operand<Source::kWide>(B{})) w[kColumns];
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) {
        w[c] = dot_operand<Source::kWide>(sources[c / kParts].template code<j>(part + c % kParts));
      }
#pragma GCC unroll 16
      for (int t = 0; t < kWidth; ++t) {
        const Four four = load_four(x.q, j * kWidth + t);
#pragma GCC unroll 4
        for (int c = 0; c < kColumns; ++c) {
          if constexpr (kRun == 1) {
            sum[c][t] = dot4(sum[c][t], w[c], four);
          } else {
            run[c][t] = i % kRun == 0 ? products(w[c], four)
                                      : add_products(run[c][t], products(w[c], four));
            if constexpr (i % kRun == kRun - 1) sum[c][t] = add_run(sum[c][t], run[c][t]);
          }
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
}

/// kWidth token rows times kColumns registers of outputs, starting at register `part` of a group.
template <typename Source, int kWidth, int kColumns>
HEARTH_SIMD void dot_quantized(const MatmulPanel& a, int32_t group, int part) {
  constexpr int kSubs = Source::kSubs;
  constexpr int kGroups = dot_groups(kColumns);
  static_assert(kGroups <= 2);
  // A group without a partner is its own partner: its results are computed and stored twice.
  const int32_t partner = group + 1 < a.num_groups ? group + 1 : group;
  const int64_t first_block = a.first / kQuantBlock;
  Source sources[] = {{a.weights + group * a.group_bytes, first_block},
                      {a.weights + partner * a.group_bytes, first_block}};
  float* const group_sums[] = {a.sums + int64_t{group} * kWidth * 16,
                               a.sums + int64_t{partner} * kWidth * 16};
  float* sums[kColumns];
  F acc[kColumns][kWidth];  // the compiler keeps those of the widest tile in memory
#pragma GCC unroll 4
  for (int c = 0; c < kColumns; ++c) {
    sums[c] = group_sums[c / kParts] + (part + c % kParts) * kLanes;
#pragma GCC unroll 16
    for (int t = 0; t < kWidth; ++t) acc[c][t] = a.first == 0 ? zero() : load(sums[c] + 16 * t);
  }
  Fetch<kGroups> fetch(a.ahead, group, part == 0);
  for (int64_t b = first_block; b < a.last / kQuantBlock; ++b) {
    fetch.block();
    const ActivationBlock x(a.tile, b, kWidth);
    F half[kColumns][kWidth];  // the sum of the first of two sub-blocks, before multiplying by d
#pragma GCC unroll 2
    for (int s = 0; s < kSubs; ++s) {
      Sum sum[kColumns][kWidth];
      sum_products<Source>(sources, x, s, part, sum);
      F scale[kColumns];
      F min[kColumns];
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) {
        sources[c / kParts].scale_and_min(s, part + c % kParts, &scale[c], &min[c]);
      }
#pragma GCC unroll 16
      for (int t = 0; t < kWidth; ++t) {
        const F d = set1(x.d[t]);
#pragma GCC unroll 4
        for (int c = 0; c < kColumns; ++c) {
          if constexpr (kSubs == 1) {
            acc[c][t] = fma(to_float(sum[c][t]), mul(d, scale[c]), acc[c][t]);
          } else if (s == 0) {
            half[c][t] = mul(to_float(sum[c][t]), scale[c]);
          } else {
            acc[c][t] = fma(fma(to_float(sum[c][t]), scale[c], half[c][t]), d, acc[c][t]);
          }
        }
      }
      if constexpr (Source::kHasMin) {
        const float* d_sums = kSubs == 1 ? x.d_sum : x.half_d_sum + s * kWidth;
#pragma GCC unroll 16
        for (int t = 0; t < kWidth; ++t) {
          const F d_sum = set1(d_sums[t]);
#pragma GCC unroll 4
          for (int c = 0; c < kColumns; ++c) acc[c][t] = fma(d_sum, min[c], acc[c][t]);
        }
      }
    }
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) sources[g].next();
  }
#pragma GCC unroll 4
  for (int c = 0; c < kColumns; ++c) {
#pragma GCC unroll 16
    for (int t = 0; t < kWidth; ++t) store(sums[c] + 16 * t, acc[c][t]);
  }
}

template <typename Source>
void matmul_quantized(const MatmulPanel& a) {
  with_width(a.width, [&]<int kWidth>() {
    constexpr int kColumns = dot_columns(kWidth);
    for (int32_t g = 0; g < a.num_groups; g += dot_groups(kColumns)) {
      for (int part = 0; part < kParts; part += kColumns) {
        dot_quantized<Source, kWidth, kColumns>(a, g, part);
      }
    }
  });
}

template <DType kType>
using UnpackedOf = Unpacked<Packed<kType>::kSubs, Packed<kType>::kHasMin, Packed<kType>::kWide,
                            unpacked_bound(quant_layout(kType))>;

template <DType kType>
void unpack_panel(const UnpackPanel& a) {
  using From = Packed<kType>;
  constexpr int kShift = UnpackedOf<kType>::kOffset - From::kOffset;  // of the bytes' offset
  uint8_t* out = a.out;
  for (int32_t g = 0; g < a.num_groups; ++g) {
    From source(a.weights + g * a.group_bytes, a.first / kQuantBlock);
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
  return {matmul_quantized<From>, unpack_panel<kType>, matmul_quantized<UnpackedOf<kType>>};
}

template <QuantFamily kFamily, int kIndex = 0>
constexpr void set_family(FamilyKernels* kernels) {
  if constexpr (kIndex < kNumQuantTypes) {
    constexpr DType kType = kQuantTypes[kIndex];
    if constexpr (quant_family(quant_layout(kType)) == kFamily) {
      kernels->of[kIndex] = quant_kernels<packed_as(kType)>();
    }
    set_family<kFamily, kIndex + 1>(kernels);
  }
}
template <QuantFamily kFamily>
constexpr FamilyKernels family_kernels() {
  FamilyKernels kernels{};
  set_family<kFamily>(&kernels);
  return kernels;
}

}  // namespace
}  // namespace hearth::kernels
