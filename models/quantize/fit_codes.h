#pragma once
// Chooses the fields of a stored block, all of them together: scales and minima as the block will
// store them, and the codes.

#include <span>

#include "kernels/ops/dtype.h"
#include "kernels/quant/quant_types.h"

namespace hearth::models {

/// The codes of one block of `type`, one of kQuantTypes that is_written, for `values`, with about
/// the least sum of squared errors. Without `importance` each square has the weight mean(x^2) + x^2
/// of its sub-block, because large values affect a sum most. With it (the mean squares of the
/// inputs; finite, at least 0), each has its input's importance times the root of that weight,
/// which leaves less divergence than the importance alone; the sum is then never above the one that
/// the codes found without it leave.
kernels::QuantCodes fit_codes(kernels::DType type, std::span<const float> values,
                              std::span<const float> importance);

}  // namespace hearth::models
