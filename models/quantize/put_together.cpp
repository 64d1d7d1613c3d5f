#include "models/quantize/put_together.h"

#include <cstring>

#include "kernels/base/check.h"
#include "kernels/quant/blocks.h"
#include "kernels/quant/quant_layout.h"

namespace hearth::models {
namespace {

using kernels::DType;
using kernels::QuantCodes;
namespace stored = kernels::stored;

template <typename Block>
void write(const Block& block, std::byte* to) {
  std::memcpy(to, &block, sizeof block);
}

uint8_t low_byte(int bits) { return static_cast<uint8_t>(bits); }

void put(uint8_t& byte, int bits, int shift) { byte = low_byte(byte | bits << shift); }

void nibbles_of_32(const uint8_t* q, uint8_t* qs) {
  for (int i = 0; i < 16; ++i) qs[i] = low_byte((q[i] & 15) | (q[16 + i] & 15) << 4);
}

void fifth_bits(const uint8_t* q, uint8_t* qh) {
  for (int i = 0; i < 32; ++i) put(qh[i / 8], q[i] >> 4, i % 8);
}

void nibbles_of_256(const uint8_t* q, uint8_t* qs) {
  for (int i = 0; i < 256; ++i) put(qs[i / 64 * 32 + i % 32], q[i] & 15, i / 32 % 2 * 4);
}

void twos_of_256(const uint8_t* q, uint8_t* qs) {
  for (int i = 0; i < 256; ++i) put(qs[i / 128 * 32 + i % 32], q[i] & 3, i / 32 % 4 * 2);
}

void six_bit_pairs(const QuantCodes& codes, uint8_t* scales) {
  for (int s = 0; s < 4; ++s) {
    scales[s] = low_byte(codes.scale[s] | codes.scale[4 + s] >> 4 << 6);
    scales[4 + s] = low_byte(codes.min[s] | codes.min[4 + s] >> 4 << 6);
    scales[8 + s] = low_byte((codes.scale[4 + s] & 15) | (codes.min[4 + s] & 15) << 4);
  }
}

/// Blocks of 32 with nibbles, and with d, m and fifth bits if the type has them.
template <typename Block>
void block_of_32(const QuantCodes& codes, std::byte* to) {
  Block block{};
  block.d = codes.d;
  if constexpr (requires { block.m; }) block.m = codes.dmin;
  if constexpr (requires { block.qh; }) fifth_bits(codes.q, block.qh);
  nibbles_of_32(codes.q, block.qs);
  write(block, to);
}

void q2_k(const QuantCodes& codes, std::byte* to) {
  stored::Q2_K block{};
  block.d = codes.d;
  block.dmin = codes.dmin;
  for (int s = 0; s < 16; ++s) {
    block.scales[s] = low_byte(codes.scale[s] | codes.min[s] << 4);
  }
  twos_of_256(codes.q, block.qs);
  write(block, to);
}

void q3_k(const QuantCodes& codes, std::byte* to) {
  stored::Q3_K block{};
  block.d = codes.d;
  for (int s = 0; s < 16; ++s) {
    put(block.scales[s % 8], codes.scale[s] & 15, s / 8 * 4);
    put(block.scales[8 + s % 4], codes.scale[s] >> 4, s / 4 * 2);
  }
  twos_of_256(codes.q, block.qs);
  for (int i = 0; i < 256; ++i) put(block.hmask[i % 32], codes.q[i] >> 2, i / 32);
  write(block, to);
}

void q4_k(const QuantCodes& codes, std::byte* to) {
  stored::Q4_K block{};
  block.d = codes.d;
  block.dmin = codes.dmin;
  six_bit_pairs(codes, block.scales);
  nibbles_of_256(codes.q, block.qs);
  write(block, to);
}

void q5_k(const QuantCodes& codes, std::byte* to) {
  stored::Q5_K block{};
  block.d = codes.d;
  block.dmin = codes.dmin;
  six_bit_pairs(codes, block.scales);
  nibbles_of_256(codes.q, block.qs);
  for (int i = 0; i < 256; ++i) put(block.qh[i % 32], codes.q[i] >> 4, i / 32);
  write(block, to);
}

void q6_k(const QuantCodes& codes, std::byte* to) {
  stored::Q6_K block{};
  block.d = codes.d;
  std::memcpy(block.scales, codes.scale, 16);
  for (int i = 0; i < 256; ++i) {
    const int h = i / 128;
    const int f = i / 32 % 4;
    put(block.ql[64 * h + 32 * (f % 2) + i % 32], codes.q[i] & 15, f / 2 * 4);
    put(block.qh[32 * h + i % 32], codes.q[i] >> 4, 2 * f);
  }
  write(block, to);
}

void iq4_xs(const QuantCodes& codes, std::byte* to) {
  stored::IQ4_XS block{};
  block.d = codes.d;
  for (int s = 0; s < 8; ++s) {
    put(block.scales_l[s / 2], codes.scale[s] & 15, s % 2 * 4);
    block.scales_h = static_cast<uint16_t>(block.scales_h | codes.scale[s] >> 4 << 2 * s);
    nibbles_of_32(codes.q + 32 * s, block.qs + 16 * s);
  }
  write(block, to);
}

}  // namespace

bool is_written(DType type) {
  return kernels::quant_index(type) < kernels::quant_index(DType::kTQ1_0);
}

void put_together(DType type, const QuantCodes& codes, std::byte* block) {
  switch (type) {
    case DType::kQ4_0: return block_of_32<stored::Q4_0>(codes, block);
    case DType::kQ4_1: return block_of_32<stored::Q4_1>(codes, block);
    case DType::kQ5_0: return block_of_32<stored::Q5_0>(codes, block);
    case DType::kQ5_1: return block_of_32<stored::Q5_1>(codes, block);
    case DType::kIQ4_NL: return block_of_32<stored::IQ4_NL>(codes, block);
    case DType::kMXFP4: {
      stored::MXFP4 out{};
      out.e = low_byte(codes.d);
      nibbles_of_32(codes.q, out.qs);
      return write(out, block);
    }
    case DType::kQ2_K: return q2_k(codes, block);
    case DType::kQ3_K: return q3_k(codes, block);
    case DType::kQ4_K: return q4_k(codes, block);
    case DType::kQ5_K: return q5_k(codes, block);
    case DType::kQ6_K: return q6_k(codes, block);
    case DType::kIQ4_XS: return iq4_xs(codes, block);
    default: HEARTH_CHECK(false, "type {}", kernels::info(type).name);
  }
}

}  // namespace hearth::models
