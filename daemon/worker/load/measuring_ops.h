#pragma once
// An op table that records the sizes of weights without storing them. With it a model file is
// opened as the engine would open it, with every key and tensor checked by its family, but without
// reading a matrix. No op of it may be called.

#include <cstdint>
#include <functional>
#include <span>

#include "kernels/ops.h"
#include "kernels/ops/packed_bytes.h"

namespace hearth::worker {

/// The bytes that a device's pack_weights would take for these tensors.
using PackedBytes =
    std::function<uint64_t(std::span<const kernels::HostTensor>, kernels::WeightRole)>;

/// Vectors (norms, biases) are stored, being small; of a matrix only the shape. Weight::bytes of
/// matrices come from `packed_bytes`, by default the CPU table's; they are 0 for those that stay in
/// the file of a table with `most_packed_bytes`.
kernels::OpTable measuring_ops(PackedBytes packed_bytes = kernels::cpu_packed_bytes,
                               uint64_t most_packed_bytes = UINT64_MAX);

}  // namespace hearth::worker
