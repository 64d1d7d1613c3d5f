#pragma once
// What weights take once a device has packed them, before anything is packed.

#include <cstdint>
#include <span>

#include "kernels/ops.h"

namespace hearth::kernels {

/// Weight::bytes of what the CPU's pack_weights would return, whatever the variant. Tensors of
/// types and shapes that it takes; their bytes are not read.
uint64_t cpu_packed_bytes(std::span<const HostTensor> tensors, WeightRole role);

}  // namespace hearth::kernels
