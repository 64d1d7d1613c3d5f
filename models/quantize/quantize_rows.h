#pragma once
// Rows of floats into every type that hearth computes with. Scalar and the same bits everywhere.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/result.h"
#include "kernels/ops/dtype.h"

namespace hearth::models {

/// The stored bytes of `values` in `type`, rows of `cols` values one after the other.
/// Quantized types search scales for the least squared error, weighted by the values' own squares;
/// scales that a half cannot hold are taken as its largest. Q8_0, F32, F16 and BF16 are rounded.
/// Errors: kUnsupported for a type without an encoder or cols that are not whole blocks;
/// kInvalidArgument for a value that is not finite, beyond F16 or Q8_0, or (searched types) 1e30,
/// with its index.
Result<std::vector<std::byte>> quantize_rows(kernels::DType type, std::span<const float> values,
                                             int64_t cols);

}  // namespace hearth::models
