#pragma once
// Encodes rows of floats in every type that hearth computes with. Scalar code; every machine
// produces the same bits.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/result.h"
#include "kernels/ops/dtype.h"

namespace hearth::models {

/// The stored bytes of `values` in `type`, rows of `cols` values one after the other.
/// Quantized types search for the scales with the least squared error, weighted by the values' own
/// squares or by `importance` (fit_codes.h): the mean square of each of the `cols` inputs, the same
/// for every row; empty: unknown. Scales too large for a half become its largest value. Q8_0, F32,
/// F16 and BF16 are rounded.
/// Errors: kUnsupported for a type without an encoder or cols that are not whole blocks;
/// kInvalidArgument, with its index, for a value that is not finite, is out of range for F16 or
/// Q8_0, or (searched types) exceeds 1e30.
Result<std::vector<std::byte>> quantize_rows(kernels::DType type, std::span<const float> values,
                                             int64_t cols, std::span<const float> importance = {});

}  // namespace hearth::models
