#pragma once
// What a file has for the products of its quantized matrices, beyond their numbers.
//
// Scales of whole matrices, as published NVFP4 has them: NAME.scale next to NAME.weight, one for
// each expert. NAME.input_scale is for products whose other factor is NVFP4, too, and is not
// needed.
//
// `quantization.outliers_from` (f32): the products of matrices in Q8_0 do not quantize inputs from
// that magnitude on (kernels::HostTensor). `hearth convert` writes it for LLM.int8; the numbers of
// these matrices are those of any Q8_0.

#include <string_view>
#include <unordered_set>
#include <vector>

#include "kernels/base/result.h"
#include "models/gguf/gguf_file.h"

namespace hearth::models {

inline constexpr std::string_view kOutliersFrom = "quantization.outliers_from";

/// The key's value; 0 without it. kCorrupt: not a finite number above 0.
Result<float> outliers_from(const GgufFile& file);

/// The scales of a weight's matrices; empty if it has none. kCorrupt, kUnsupported name a scale of
/// another type or size, or one that is not finite.
Result<std::vector<float>> scales_of(const GgufFile& file, const GgufTensor& weight);

/// The names of the scales of these weights, and of their inputs.
std::unordered_set<std::string_view> scale_names(const GgufFile& file);

}  // namespace hearth::models
