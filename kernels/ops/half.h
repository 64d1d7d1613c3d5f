#pragma once
// Short floats in portable code: f16 (IEEE 754 binary16), bf16 (upper half of f32) and E4M3 (as
// kv_type.h describes it). Conversions to them round to nearest even, as the CPU's instructions do.
// Files built for one instruction set do not include this header: their inline code must not leak
// into portable files.

#include <bit>
#include <cstdint>

namespace hearth::kernels {

inline float f32_from_f16(uint16_t h) {
  const uint32_t sign = (h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 0x1f;
  const uint32_t mantissa = h & 0x3ff;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in f32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  if (exponent == 31) {  // infinity, or a NaN made quiet
    const uint32_t quiet = mantissa != 0 ? 0x400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | quiet | (mantissa << 13));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

inline uint16_t f16_from_f32(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {  // NaN made quiet
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);  // >= 2^16
  if (magnitude < 0x38800000u) {  // below 2^-14: subnormal
    // Adding 0.5 aligns the last f16 bit with the last f32 bit; the addition rounds to even.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(aligned) - 0x3f000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  const uint32_t rounded = magnitude - 0x38000000u + 0xfffu + odd;
  return static_cast<uint16_t>(sign | (rounded >> 13));  // a carry past 65504 gives infinity
}

inline float f32_from_bf16(uint16_t h) { return std::bit_cast<float>(uint32_t{h} << 16); }

inline uint16_t bf16_from_f32(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// `code` of E4M3. All codes are numbers here: 0x7f is 480, and is never stored.
inline float f32_from_e4m3(uint8_t code) {
  const uint32_t sign = (code & 0x80u) << 24;
  const uint32_t exponent = (code >> 3) & 15;
  const uint32_t mantissa = code & 7;
  const float small = static_cast<float>(mantissa) * 0x1p-9f;
  const uint32_t bits =
      exponent == 0 ? std::bit_cast<uint32_t>(small) : (exponent + 120) << 23 | mantissa << 20;
  return std::bit_cast<float>(sign | bits);
}

/// Numbers beyond 448 become 448. `f` is not NaN.
inline uint8_t e4m3_from_f32(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const uint32_t most = 0x43e00000u;  // 448
  const uint32_t magnitude = (bits & 0x7fffffffu) < most ? bits & 0x7fffffffu : most;
  // From 2^-6 on numbers are normal. Below, adding 1.5 * 2^14 aligns the last bits.
  const uint32_t normal = (magnitude + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20;
  const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 24576.0f);
  const uint32_t code = magnitude >= 0x3c800000u ? normal - (120u << 3) : small - 0x46c00000u;
  return static_cast<uint8_t>(code | (bits >> 24 & 0x80u));
}

}  // namespace hearth::kernels
