#pragma once
// Parses numbers with units from a command line.

#include <string>
#include <string_view>

#include "kernels/base/result.h"

namespace hearth::worker {

/// "80GB", "3.35TB/s", "16GiB", "989T", "26031728640": a number above 0, an optional multiple of k
/// M G T (powers of 1000) or Ki Mi Gi Ti (of 1024), and an optional unit, which is ignored: B, B/s,
/// op/s, FLOP/s. kInvalidArgument names `field`.
Result<double> parse_quantity(std::string_view field, std::string_view text);

}  // namespace hearth::worker
