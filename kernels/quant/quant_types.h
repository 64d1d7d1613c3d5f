#pragma once
// Stored blocks in portable scalar code: their fields, for packing, and their values. The reference
// computes with this code, and the golden vectors test the formats against it.

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/ops/dtype.h"

namespace hearth::kernels {

/// A stored block's fields as unsigned codes, in input order; quant_layout() lists them.
struct QuantCodes {
  uint16_t d;         ///< f16; MXFP4: E8M0; NVFP4: unused
  uint16_t dmin;      ///< f16: dmin of K types, m of Q4_1 and Q5_1
  uint8_t scale[16];  ///< per 16 inputs, or per 32 if subs is 1; Q6_K: the bits of its int8;
                      ///< NVFP4: UE4M3, never kZeroUe4m3
  uint8_t min[16];    ///< IQ1_S: 1 where it subtracts 1/8
  uint8_t q[256];     ///< IQ types: the level, with the sign (IQ1: what IQ1_S has in min) above it
};

/// The same as values: value[i] = scale[s] * q[i] + min[s], where min is zero for a type that
/// stores no mins. Each s covers 16 inputs, or 32 if quant_layout().subs is 1.
struct QuantValues {
  float scale[16];
  float min[16];
  int8_t q[256];
};

/// `type` is one of kQuantTypes.
QuantCodes take_apart(DType type, const std::byte* block);
/// Only d, dmin, scales and mins, as far as the type has them; nothing else is written.
void take_scales_apart(DType type, const std::byte* block, QuantCodes* codes);
QuantValues values_of(DType type, const QuantCodes& codes);

/// The values of one block: out[i] = scale * q + min in f32.
void dequantize_codes(DType type, const QuantCodes& codes, float* out);

/// 2^(e - 128), which is subnormal for e below 2.
float half_scale_of_e8m0(uint8_t e);
/// Half the value of a scale of NVFP4 that is not kZeroUe4m3.
float half_scale_of_ue4m3(uint8_t bits);
/// Stands for 0 in a file.
inline constexpr uint8_t kZeroUe4m3 = 0x7f;

/// Values of whole blocks of any usable type: F32, F16, BF16, Q8_0 and kQuantTypes. `blocks` holds
/// exactly out.size() values. Bit-identical to the published definitions computed in f32.
void dequantize(DType type, std::span<const std::byte> blocks, std::span<float> out);

}  // namespace hearth::kernels
