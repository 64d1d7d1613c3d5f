#pragma once
// The types in which K and V are stored. Plain data only, because files built for one instruction
// set include this header.

#include <cstdint>

namespace hearth::kernels {

/// How K, or V, is stored (bytes: kv_layout.h). fp8 is E4M3: sign, 4 bits of exponent with a bias
/// of 7, 3 bits of mantissa; the largest number is 448. q8_0, fp8 and q4_0 have an f16 scale per 32
/// values of a head.
enum class KvType : uint8_t { kF32, kF16, kBF16, kQ8_0, kFp8, kQ4_0 };
inline constexpr int kNumKvTypes = 6;

}  // namespace hearth::kernels
