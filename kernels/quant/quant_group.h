#pragma once
// A packed group of 16 outputs (quant_layout.h): rows are placed in one lane at a time, and embed
// reads them back.

#include <cstddef>
#include <cstdint>

#include "kernels/ops/dtype.h"
#include "kernels/quant/quant_types.h"

namespace hearth::kernels {

/// Places stored row `row` (cols inputs) in lane `lane` of a group.
void place_row(DType type, const std::byte* row, int64_t cols, int lane, std::byte* group);

/// The `cols` values of lane `lane`, bit-identical to `dequantize` of the row placed there.
void lane_values(DType type, const std::byte* group, int64_t cols, int lane, float* out);

}  // namespace hearth::kernels
