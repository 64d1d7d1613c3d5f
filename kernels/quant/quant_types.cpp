#include "kernels/quant/quant_types.h"

#include <bit>
#include <cstring>

#include "kernels/base/check.h"
#include "kernels/ops/half.h"
#include "kernels/quant/blocks.h"
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
    default: HEARTH_CHECK(false, "type {}", info(type).name);
  }
}

/// The integer factor of d in scale s.
int32_t integer_scale(const QuantLayout& layout, DType type, uint8_t code) {
  if (layout.block == 32) return 1;
  if (type == DType::kQ6_K) return static_cast<int8_t>(code);
  return type == DType::kQ3_K || type == DType::kIQ4_XS ? code - 32 : code;
}

}  // namespace

float half_scale_of_e8m0(uint8_t e) {
  return std::bit_cast<float>(e < 2 ? 0x00200000u << e : static_cast<uint32_t>(e - 1) << 23);
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
                                        : f32_from_f16(codes.d);
  const float dmin = f32_from_f16(codes.dmin);
  const int num_scales = layout.block / 32 * layout.subs;
  for (int s = 0; s < num_scales; ++s) {
    values.scale[s] = d * static_cast<float>(integer_scale(layout, type, codes.scale[s]));
    if (layout.has_min) {
      values.min[s] = layout.block == 32 ? dmin : -(dmin * static_cast<float>(codes.min[s]));
    }
  }
  for (int i = 0; i < layout.block; ++i) {
    switch (layout.codebook) {
      case Codebook::kNone: values.q[i] = static_cast<int8_t>(codes.q[i] - layout.offset); break;
      case Codebook::kIq4: values.q[i] = kIq4Values[codes.q[i]]; break;
      case Codebook::kFp4: values.q[i] = kFp4Values[codes.q[i]]; break;
    }
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
    out[i] = layout.has_min ? product + values.min[i / sub] : product;
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
