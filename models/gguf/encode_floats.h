#pragma once
// Encodes floats in the types that hearth writes.

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/ops/dtype.h"

namespace hearth::models {

/// The bytes of `values` in F32, F16 or Q8_0.
/// Q8_0: per block of 32, d = max |x| / 127 stored as half, q = x * (127 / max |x|) rounded half to
/// even, a block being the half d and 32 int8. `values` is then a multiple of 32 long.
std::vector<std::byte> encode_floats(kernels::DType dtype, std::span<const float> values);

}  // namespace hearth::models
