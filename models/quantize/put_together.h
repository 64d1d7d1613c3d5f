#pragma once
// Packs codes into a stored block; the inverse of take_apart in kernels/.

#include <cstddef>

#include "kernels/quant/quant_types.h"

namespace hearth::models {

/// False for those of kQuantTypes that hearth reads and does not write: low-bit types, IQ4 aside.
bool is_written(kernels::DType type);

/// Writes one block of `type`, one of kQuantTypes that is_written, info(type).block_bytes long.
/// Codes are in the range of their field. Layouts: kernels/quant/blocks.h.
void put_together(kernels::DType type, const kernels::QuantCodes& codes, std::byte* block);

}  // namespace hearth::models
