#pragma once
// Sizes of packed weights, computed before anything is packed.

#include <cstdint>
#include <span>

#include "kernels/ops.h"

namespace hearth::kernels {

/// Weight::bytes that the CPU's pack_weights would give the result, for every variant. The tensors'
/// types and shapes must be packable; their bytes are not read.
uint64_t cpu_packed_bytes(std::span<const HostTensor> tensors, WeightRole role);

}  // namespace hearth::kernels
