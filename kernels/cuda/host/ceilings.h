#pragma once
// Measures a CUDA device's peak rates, the ceilings that speeds are compared with.

#include "kernels/host/ceilings.h"
#include "kernels/ops.h"

namespace hearth::kernels {

/// Measures the device of a CUDA table: a kernel that reads `read_bytes` of device memory (an
/// accurate figure needs several times the device's L2), f32 multiply-adds from registers, and
/// products of the tensor cores from registers: int8 (mma.m16n8k32) and f16 with sums in f32
/// (mma.m16n8k16), which is less than wgmma reaches on compute capability 9.0. Returns the best of
/// a few runs each.
/// kOutOfMemory if the buffer does not fit.
Result<Ceilings> measure_cuda_ceilings(const OpTable& ops, size_t read_bytes);

}  // namespace hearth::kernels
