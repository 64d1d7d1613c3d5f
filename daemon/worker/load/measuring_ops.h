#pragma once
// An op table that takes weights in without taking them: it knows their sizes. With it a model file
// is opened as the engine would open it, every key and tensor checked by its own family, and no
// byte of a matrix is read. No op of it may be called.

#include <cstdint>
#include <functional>
#include <span>

#include "kernels/ops.h"
#include "kernels/ops/packed_bytes.h"

namespace hearth::worker {

/// What a device's pack_weights would take for these tensors.
using PackedBytes =
    std::function<uint64_t(std::span<const kernels::HostTensor>, kernels::WeightRole)>;

/// Vectors (norms, biases) are held, being small; a matrix is its shape. Weight::bytes of matrices
/// are what `packed_bytes` says, by default of the CPU's table.
kernels::OpTable measuring_ops(PackedBytes packed_bytes = kernels::cpu_packed_bytes);

}  // namespace hearth::worker
