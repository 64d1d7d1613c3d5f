#pragma once
// What a CUDA device can do at most, measured: the ceilings that speeds are judged against.

#include "kernels/host/ceilings.h"
#include "kernels/ops.h"

namespace hearth::kernels {

/// Of the device of a CUDA table: a kernel that reads `read_bytes` of device memory, several times
/// the device's L2 for a true figure; f32 multiply-adds from registers; int8 products of the tensor
/// cores (mma.m16n8k32) from registers. The best of a few runs each. kOutOfMemory where the buffer
/// does not fit.
Result<Ceilings> measure_cuda_ceilings(const OpTable& ops, size_t read_bytes);

}  // namespace hearth::kernels
