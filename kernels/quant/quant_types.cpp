#include "kernels/quant/quant_types.h"

#include <bit>
#include <cstring>

#include "kernels/base/check.h"
#include "kernels/ops/half.h"
#include "kernels/quant/blocks.h"
#include "kernels/quant/grids.h"
#include "kernels/quant/quant_layout.h"

namespace hearth::kernels {
namespace {

template <typename Block>
Block read(const std::byte* bytes) {
  Block block;
  std::memcpy(&block, bytes, sizeof block);
  return block;
}

uint8_t field(uint32_t bits, int shift, uint32_t mask) {
  return static_cast<uint8_t>((bits >> shift) & mask);
}

/// 16 bytes: value i low, value 16 + i high.
void nibbles_of_32(const uint8_t* qs, uint8_t* q) {
  for (int i = 0; i < 16; ++i) {
    q[i] = qs[i] & 15;
    q[16 + i] = qs[i] >> 4;
  }
}

void fifth_bits(const uint8_t* qh, uint8_t* q) {
  for (int i = 0; i < 32; ++i) q[i] |= static_cast<uint8_t>(field(qh[i / 8], i % 8, 1) << 4);
}

/// 128 bytes: each 32 of them hold one sub-block in the low nibbles and the next in the high ones.
void nibbles_of_256(const uint8_t* qs, uint8_t* q) {
  for (int c = 0; c < 4; ++c) {
    for (int i = 0; i < 32; ++i) {
      q[64 * c + i] = qs[32 * c + i] & 15;
      q[64 * c + 32 + i] = qs[32 * c + i] >> 4;
    }
  }
}

/// 64 bytes: each 32 of them hold four sub-blocks, one per field of two bits.
void twos_of_256(const uint8_t* qs, uint8_t* q) {
  for (int h = 0; h < 2; ++h) {
    for (int f = 0; f < 4; ++f) {
      for (int i = 0; i < 32; ++i) q[128 * h + 32 * f + i] = field(qs[32 * h + i], 2 * f, 3);
    }
  }
}

/// Scales and mins of Q4_K and Q5_K.
void six_bit_pairs(const uint8_t* scales, QuantCodes& codes) {
  for (int s = 0; s < 4; ++s) {
    codes.scale[s] = scales[s] & 63;
    codes.min[s] = scales[4 + s] & 63;
    codes.scale[4 + s] = static_cast<uint8_t>((scales[8 + s] & 15) | scales[s] >> 6 << 4);
    codes.min[4 + s] = static_cast<uint8_t>(scales[8 + s] >> 4 | scales[4 + s] >> 6 << 4);
  }
}

void scales_apart(const stored::Q2_K& b, QuantCodes& codes) {
  codes.d = b.d;
  codes.dmin = b.dmin;
  for (int s = 0; s < 16; ++s) {
    codes.scale[s] = b.scales[s] & 15;
    codes.min[s] = b.scales[s] >> 4;
  }
}

void codes_apart(const stored::Q2_K& b, QuantCodes& codes) { twos_of_256(b.qs, codes.q); }

void scales_apart(const stored::Q3_K& b, QuantCodes& codes) {
  codes.d = b.d;
  for (int s = 0; s < 16; ++s) {
    codes.scale[s] = static_cast<uint8_t>(field(b.scales[s % 8], s / 8 * 4, 15) |
                                          field(b.scales[8 + s % 4], s / 4 * 2, 3) << 4);
  }
}

void codes_apart(const stored::Q3_K& b, QuantCodes& codes) {
  twos_of_256(b.qs, codes.q);
  for (int i = 0; i < 256; ++i) {
    codes.q[i] |= static_cast<uint8_t>(field(b.hmask[i % 32], i / 32, 1) << 2);
  }
}

void scales_apart(const stored::Q4_K& b, QuantCodes& codes) {
  codes.d = b.d;
  codes.dmin = b.dmin;
  six_bit_pairs(b.scales, codes);
}

void codes_apart(const stored::Q4_K& b, QuantCodes& codes) { nibbles_of_256(b.qs, codes.q); }

void scales_apart(const stored::Q5_K& b, QuantCodes& codes) {
  codes.d = b.d;
  codes.dmin = b.dmin;
  six_bit_pairs(b.scales, codes);
}

void codes_apart(const stored::Q5_K& b, QuantCodes& codes) {
  nibbles_of_256(b.qs, codes.q);
  for (int n = 0; n < 8; ++n) {
    uint8_t* q = codes.q + 32 * n;
    for (int i = 0; i < 32; ++i) q[i] |= static_cast<uint8_t>(field(b.qh[i], n, 1) << 4);
  }
}

void scales_apart(const stored::Q6_K& b, QuantCodes& codes) {
  codes.d = b.d;
  std::memcpy(codes.scale, b.scales, 16);
}

void codes_apart(const stored::Q6_K& b, QuantCodes& codes) {
  for (int n = 0; n < 8; ++n) {  // 32 at a time, so that these loops vectorize
    const int f = n % 4;
    const uint8_t* low = b.ql + n / 4 * 64 + f % 2 * 32;
    const uint8_t* high = b.qh + n / 4 * 32;
    uint8_t* q = codes.q + 32 * n;
    for (int i = 0; i < 32; ++i) {
      q[i] = static_cast<uint8_t>(field(low[i], f / 2 * 4, 15) | field(high[i], 2 * f, 3) << 4);
    }
  }
}

void scales_apart(const stored::IQ4_XS& b, QuantCodes& codes) {
  codes.d = b.d;
  for (int s = 0; s < 8; ++s) {
    codes.scale[s] = static_cast<uint8_t>(field(b.scales_l[s / 2], s % 2 * 4, 15) |
                                          field(b.scales_h, 2 * s, 3) << 4);
  }
}

void codes_apart(const stored::IQ4_XS& b, QuantCodes& codes) {
  for (int s = 0; s < 8; ++s) nibbles_of_32(b.qs + 16 * s, codes.q + 32 * s);
}

void scales_apart(const stored::Q4_0& b, QuantCodes& codes) { codes.d = b.d; }

void codes_apart(const stored::Q4_0& b, QuantCodes& codes) { nibbles_of_32(b.qs, codes.q); }

void scales_apart(const stored::Q4_1& b, QuantCodes& codes) {
  codes.d = b.d;
  codes.dmin = b.m;
}

void codes_apart(const stored::Q4_1& b, QuantCodes& codes) { nibbles_of_32(b.qs, codes.q); }

void scales_apart(const stored::Q5_0& b, QuantCodes& codes) { codes.d = b.d; }

void codes_apart(const stored::Q5_0& b, QuantCodes& codes) {
  nibbles_of_32(b.qs, codes.q);
  fifth_bits(b.qh, codes.q);
}

void scales_apart(const stored::Q5_1& b, QuantCodes& codes) {
  codes.d = b.d;
  codes.dmin = b.m;
}

void codes_apart(const stored::Q5_1& b, QuantCodes& codes) {
  nibbles_of_32(b.qs, codes.q);
  fifth_bits(b.qh, codes.q);
}

void scales_apart(const stored::MXFP4& b, QuantCodes& codes) { codes.d = b.e; }

void codes_apart(const stored::MXFP4& b, QuantCodes& codes) { nibbles_of_32(b.qs, codes.q); }

void scales_apart(const stored::NVFP4& b, QuantCodes& codes) {
  for (int s = 0; s < 4; ++s) codes.scale[s] = b.d[s] == kZeroUe4m3 ? 0 : b.d[s];
}

void codes_apart(const stored::NVFP4& b, QuantCodes& codes) {
  for (int i = 0; i < 32; ++i) {
    uint8_t* q = codes.q + i / 8 * 16 + i % 8;
    q[0] = b.qs[i] & 15;
    q[8] = b.qs[i] >> 4;
  }
}

/// Digits of base 3: digit n of byte i at q[count * n + i].
void digits(const uint8_t* bytes, int count, int num_digits, uint8_t* q) {
  uint32_t power = 1;
  for (int n = 0; n < num_digits; ++n, power *= 3) {
    for (int i = 0; i < count; ++i) {
      q[count * n + i] = field((bytes[i] * power & 255) * 3, 8, 3);
    }
  }
}

void scales_apart(const stored::TQ1_0& b, QuantCodes& codes) { codes.d = b.d; }

void codes_apart(const stored::TQ1_0& b, QuantCodes& codes) {
  digits(b.qs, 32, 5, codes.q);
  digits(b.qs + 32, 16, 5, codes.q + 160);
  digits(b.qh, 4, 4, codes.q + 240);
}

void scales_apart(const stored::TQ2_0& b, QuantCodes& codes) { codes.d = b.d; }

void codes_apart(const stored::TQ2_0& b, QuantCodes& codes) { twos_of_256(b.qs, codes.q); }

/// Eight bits as the lowest ones of eight bytes.
uint64_t spread_bits(uint64_t bits) {
  bits = (bits | bits << 28) & 0x0000000f0000000full;
  bits = (bits | bits << 14) & 0x0003000300030003ull;
  return (bits | bits << 7) & 0x0101010101010101ull;
}

/// The eight signs of seven bits.
uint32_t even_signs(uint32_t seven) { return seven | (std::popcount(seven) & 1u) << 7; }

/// Eight codes from a grid's entry of eight levels; bits of `signs` go above them.
void grid_of_eight(uint64_t entry, uint32_t signs, uint8_t* q) {
  entry = (entry | entry << 24) & 0x000000ff000000ffull;
  entry = (entry | entry << 12) & 0x000f000f000f000full;
  entry = (entry | entry << 6) & 0x0303030303030303ull;
  entry |= spread_bits(signs) << 2;
  std::memcpy(q, &entry, 8);
}

/// The same from two entries of four levels.
void grid_of_four(uint64_t low, uint64_t high, uint32_t signs, uint8_t* q) {
  uint64_t entries = low | high << 32;
  entries = (entries | entries << 10) & 0x003f003f003f003full;
  entries = (entries | entries << 5) & 0x0707070707070707ull;
  entries |= spread_bits(signs) << 3;
  std::memcpy(q, &entries, 8);
}

uint32_t word_at(const uint8_t* bytes) {
  uint32_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

/// One scale per nibble.
void nibble_scales(const uint8_t* scales, int bytes, QuantCodes& codes) {
  for (int i = 0; i < bytes; ++i) {
    codes.scale[2 * i] = scales[i] & 15;
    codes.scale[2 * i + 1] = scales[i] >> 4;
  }
}

void scales_apart(const stored::IQ2_XXS& b, QuantCodes& codes) {
  codes.d = b.d;
  for (int s = 0; s < 8; ++s) codes.scale[s] = b.qs[8 * s + 7] >> 4;
}

void codes_apart(const stored::IQ2_XXS& b, QuantCodes& codes) {
  for (int g = 0; g < 32; ++g) {
    const uint8_t* part = b.qs + g / 4 * 8;
    const uint32_t signs = word_at(part + 4) >> 7 * (g % 4) & 127;
    grid_of_eight(kIq2XxsGrid[part[g % 4]], even_signs(signs), codes.q + 8 * g);
  }
}

void scales_apart(const stored::IQ2_XS& b, QuantCodes& codes) {
  codes.d = b.d;
  nibble_scales(b.scales, 8, codes);
}

void codes_apart(const stored::IQ2_XS& b, QuantCodes& codes) {
  for (int g = 0; g < 32; ++g) {
    grid_of_eight(kIq2XsGrid[b.qs[g] & 511], even_signs(b.qs[g] >> 9), codes.q + 8 * g);
  }
}

void scales_apart(const stored::IQ2_S& b, QuantCodes& codes) {
  codes.d = b.d;
  nibble_scales(b.scales, 8, codes);
}

void codes_apart(const stored::IQ2_S& b, QuantCodes& codes) {
  for (int g = 0; g < 32; ++g) {
    const int index = b.qs[g] | field(b.qh[g / 4], 2 * (g % 4), 3) << 8;
    grid_of_eight(kIq2SGrid[index], b.signs[g], codes.q + 8 * g);
  }
}

void scales_apart(const stored::IQ3_XXS& b, QuantCodes& codes) {
  codes.d = b.d;
  for (int s = 0; s < 8; ++s) codes.scale[s] = b.signs[4 * s + 3] >> 4;
}

void codes_apart(const stored::IQ3_XXS& b, QuantCodes& codes) {
  for (int g = 0; g < 32; ++g) {
    const uint32_t signs = word_at(b.signs + g / 4 * 4) >> 7 * (g % 4) & 127;
    grid_of_four(kIq3XxsGrid[b.qs[2 * g]], kIq3XxsGrid[b.qs[2 * g + 1]], even_signs(signs),
                 codes.q + 8 * g);
  }
}

void scales_apart(const stored::IQ3_S& b, QuantCodes& codes) {
  codes.d = b.d;
  nibble_scales(b.scales, 4, codes);
}

void codes_apart(const stored::IQ3_S& b, QuantCodes& codes) {
  const auto entry = [&b](int g) { return kIq3SGrid[b.qs[g] | field(b.qh[g / 8], g % 8, 1) << 8]; };
  for (int g = 0; g < 32; ++g) {
    grid_of_four(entry(2 * g), entry(2 * g + 1), b.signs[g], codes.q + 8 * g);
  }
}

/// Eight codes, with the bit that subtracts 1/8 above each level.
void grid_of_eighths(int index, int minus, uint8_t* q) {
  grid_of_eight(kIq1Grid[index], minus != 0 ? 255 : 0, q);
}

void scales_apart(const stored::IQ1_S& b, QuantCodes& codes) {
  codes.d = b.d;
  for (int s = 0; s < 8; ++s) {
    codes.scale[s] = field(b.qh[s], 12, 7);
    codes.min[s] = field(b.qh[s], 15, 1);
  }
}

void codes_apart(const stored::IQ1_S& b, QuantCodes& codes) {
  for (int g = 0; g < 32; ++g) {
    const uint16_t high = b.qh[g / 4];
    grid_of_eighths(b.qs[g] | field(high, 3 * (g % 4), 7) << 8, high >> 15, codes.q + 8 * g);
  }
}

void scales_apart(const stored::IQ1_M& b, QuantCodes& codes) {
  codes.d = 0;
  for (int i = 0; i < 4; ++i) codes.d |= b.scales[i] >> 12 << 4 * i;
  for (int s = 0; s < 16; ++s) codes.scale[s] = field(b.scales[s / 4], 3 * (s % 4), 7);
}

void codes_apart(const stored::IQ1_M& b, QuantCodes& codes) {
  for (int g = 0; g < 32; ++g) {
    const uint8_t high = field(b.qh[g / 2], 4 * (g % 2), 15);
    grid_of_eighths(b.qs[g] | (high & 7) << 8, high >> 3, codes.q + 8 * g);
  }
}

/// Calls visit(block), with the block as its stored type.
template <typename Visit>
void visit_block(DType type, const std::byte* block, const Visit& visit) {
  switch (type) {
    case DType::kQ4_0:
    case DType::kIQ4_NL: return visit(read<stored::Q4_0>(block));
    case DType::kQ4_1: return visit(read<stored::Q4_1>(block));
    case DType::kQ5_0: return visit(read<stored::Q5_0>(block));
    case DType::kQ5_1: return visit(read<stored::Q5_1>(block));
    case DType::kMXFP4: return visit(read<stored::MXFP4>(block));
    case DType::kQ2_K: return visit(read<stored::Q2_K>(block));
    case DType::kQ3_K: return visit(read<stored::Q3_K>(block));
    case DType::kQ4_K: return visit(read<stored::Q4_K>(block));
    case DType::kQ5_K: return visit(read<stored::Q5_K>(block));
    case DType::kQ6_K: return visit(read<stored::Q6_K>(block));
    case DType::kIQ4_XS: return visit(read<stored::IQ4_XS>(block));
    case DType::kTQ1_0: return visit(read<stored::TQ1_0>(block));
    case DType::kTQ2_0: return visit(read<stored::TQ2_0>(block));
    case DType::kNVFP4: return visit(read<stored::NVFP4>(block));
    case DType::kIQ2_XXS: return visit(read<stored::IQ2_XXS>(block));
    case DType::kIQ2_XS: return visit(read<stored::IQ2_XS>(block));
    case DType::kIQ2_S: return visit(read<stored::IQ2_S>(block));
    case DType::kIQ3_XXS: return visit(read<stored::IQ3_XXS>(block));
    case DType::kIQ3_S: return visit(read<stored::IQ3_S>(block));
    case DType::kIQ1_S: return visit(read<stored::IQ1_S>(block));
    case DType::kIQ1_M: return visit(read<stored::IQ1_M>(block));
    default: HEARTH_CHECK(false, "type {}", info(type).name);
  }
}

/// The integer in a scale, from its code.
int32_t integer_scale(const QuantLayout& layout, DType type, uint8_t code) {
  if (has_odd_scales(type)) return 2 * code + 1;
  switch (layout.sub_scales) {
    case SubScales::kSigned: return static_cast<int8_t>(code);
    case SubScales::kOneSix: return code - 32;
    case SubScales::kTwoSix: return layout.has_min ? code : code - 32;
    case SubScales::kNibbles: return code;
    case SubScales::kNone:
    case SubScales::kOneFour:
    case SubScales::kTwoFour:
    case SubScales::kUe4m3: break;
  }
  return 1;
}

}  // namespace

float half_scale_of_e8m0(uint8_t e) {
  return std::bit_cast<float>(e < 2 ? 0x00200000u << e : static_cast<uint32_t>(e - 1) << 23);
}

float half_scale_of_ue4m3(uint8_t bits) {
  // Exponent and first three bits of the mantissa of an f32, whose exponents are 120 higher.
  return std::bit_cast<float>((bits & 127u) << 20) * 0x1p119f;
}

void take_scales_apart(DType type, const std::byte* block, QuantCodes* codes) {
  visit_block(type, block, [codes](const auto& b) { scales_apart(b, *codes); });
}

QuantCodes take_apart(DType type, const std::byte* block) {
  QuantCodes codes{};
  visit_block(type, block, [&codes](const auto& b) {
    scales_apart(b, codes);
    codes_apart(b, codes);
  });
  return codes;
}

QuantValues values_of(DType type, const QuantCodes& codes) {
  const QuantLayout layout = quant_layout(type);
  QuantValues values{};
  const float d = type == DType::kMXFP4 ? half_scale_of_e8m0(static_cast<uint8_t>(codes.d))
                                        : f32_from_f16(codes.d) * scale_unit(type);
  const float dmin = f32_from_f16(codes.dmin);
  const int num_scales = layout.block / 32 * layout.subs;
  for (int s = 0; s < num_scales; ++s) {
    values.scale[s] = type == DType::kNVFP4
                          ? half_scale_of_ue4m3(codes.scale[s])
                          : d * static_cast<float>(integer_scale(layout, type, codes.scale[s]));
    if (layout.stores_min()) {
      values.min[s] = layout.block == 32 ? dmin : -(dmin * static_cast<float>(codes.min[s]));
    }
  }
  // The eighths of IQ1_S are part of the values here.
  const Codebook book = type == DType::kIQ1_S ? Codebook::kIq1 : layout.codebook;
  const int8_t(&table)[16] = codebook_values(book);
  for (int i = 0; i < layout.block; ++i) {
    values.q[i] = book == Codebook::kNone ? static_cast<int8_t>(codes.q[i] - layout.offset)
                                          : table[codes.q[i]];
  }
  return values;
}

void dequantize_codes(DType type, const QuantCodes& codes, float* out) {
  const QuantLayout layout = quant_layout(type);
  const QuantValues values = values_of(type, codes);
  const int sub = 32 / layout.subs;
  for (int i = 0; i < layout.block; ++i) {
    const float product = values.scale[i / sub] * static_cast<float>(values.q[i]);
    // Adding a zero would turn a product of -0 into 0.
    out[i] = layout.stores_min() ? product + values.min[i / sub] : product;
  }
}

void dequantize(DType type, std::span<const std::byte> blocks, std::span<float> out) {
  HEARTH_CHECK(blocks.size() == bytes_of(type, out.size()), "{} bytes for {} values of {}",
               blocks.size(), out.size(), info(type).name);
  const std::byte* at = blocks.data();
  const size_t step = info(type).block_bytes;
  const size_t count = info(type).block_elements;
  for (size_t i = 0; i < out.size(); i += count, at += step) {
    switch (type) {
      case DType::kF32: out[i] = read<float>(at); break;
      case DType::kF16: out[i] = f32_from_f16(read<uint16_t>(at)); break;
      case DType::kBF16: out[i] = f32_from_bf16(read<uint16_t>(at)); break;
      case DType::kQ8_0: {
        const auto block = read<stored::Q8_0>(at);
        const float d = f32_from_f16(block.d);
        for (size_t k = 0; k < 32; ++k) out[i + k] = d * static_cast<float>(block.qs[k]);
        break;
      }
      default: dequantize_codes(type, take_apart(type, at), out.data() + i);
    }
  }
}

}  // namespace hearth::kernels
