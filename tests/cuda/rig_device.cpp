// The table under test on a real device, if there is one.

#include "tests/cuda/rig.h"

namespace hearth::tests {

Result<kernels::OpTable> table_under_test() { return kernels::cuda_ops({}); }
std::optional<kernels::OpTable> table_without_wgmma() { return std::nullopt; }
std::optional<RuntimeCounts> runtime_counts() { return std::nullopt; }
bool refuse_capture(CapturePart) { return false; }
void in_every_order(const std::function<void()>& test) { test(); }

}  // namespace hearth::tests
