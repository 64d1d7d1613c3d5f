#pragma once

#include "kernels/ops.h"

namespace hearth::tests {

/// Tests whether a product by one cuBLASLt algorithm has the same bits for few rows and for many:
/// prints a table over the shapes of an 8 B model, in f16 and bf16. Draws no conclusion. False:
/// cuBLASLt is not installed.
bool print_row_bits(const kernels::OpTable& ops, bool small);

}  // namespace hearth::tests
