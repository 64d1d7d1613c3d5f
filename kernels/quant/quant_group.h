#pragma once
// A packed group of 16 outputs (quant_layout.h): blocks go in one lane at a time, and come out
// again for embed.

#include <cstddef>
#include <cstdint>

#include "kernels/ops/dtype.h"
#include "kernels/quant/quant_types.h"

namespace hearth::kernels {

/// Puts stored row `row` (cols inputs) into lane `lane` of a group.
void place_row(DType type, const std::byte* row, int64_t cols, int lane, std::byte* group);

/// Values of lane `lane`, cols floats: the bits that `dequantize` gives of the row placed there.
void lane_values(DType type, const std::byte* group, int64_t cols, int lane, float* out);

}  // namespace hearth::kernels
