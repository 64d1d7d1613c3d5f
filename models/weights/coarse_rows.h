#pragma once
// Rows of a matrix stored again in few bits, for products whose exact results do not matter.

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/ops/dtype.h"

namespace hearth::models {

/// Whether coarse_rows makes rows of `cols` values in `type` clearly smaller.
bool can_be_coarser(kernels::DType type, int64_t cols);

/// The values of `rows`, whole rows of a type that can_be_coarser, in Q4_0: a block's largest value
/// becomes -8 times its scale, the others are rounded. A block with a value that is not finite gets
/// a scale that is not a number.
std::vector<std::byte> coarse_rows(kernels::DType type, std::span<const std::byte> rows);

}  // namespace hearth::models
