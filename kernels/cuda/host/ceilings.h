#pragma once
// Measures a CUDA device's peak rates, the ceilings that speeds are compared with.

#include "kernels/host/ceilings.h"
#include "kernels/ops.h"

namespace hearth::kernels {

/// Measures the device of a CUDA table: a kernel that reads `read_bytes` of device memory (an
/// accurate figure needs several times the device's L2), f32 multiply-adds from registers, and int8
/// products of the tensor cores (mma.m16n8k32) from registers. Returns the best of a few runs each.
/// kOutOfMemory if the buffer does not fit.
Result<Ceilings> measure_cuda_ceilings(const OpTable& ops, size_t read_bytes);

}  // namespace hearth::kernels
