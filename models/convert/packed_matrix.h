#pragma once
// Matrices that are published as whole numbers with scales (GPTQ, AWQ, compressed-tensors,
// LLM.int8) or as 8-bit floats with scales (fp8). A matrix takes the place of the tensors that hold
// its parts, so the planner sees what they stand for.
//
// Whole numbers are kept without loss where a GGUF type holds the same numbers: Q4_0 for 4 bits
// without zero points, Q5_0 for 4 bits with zero points, Q8_0 for 8 bits. In each, 32 inputs share
// a scale of F16, to which other scales are rounded.
//
// Sources: Frantar et al. 2023 (GPTQ); Lin et al. 2024 (AWQ); Dettmers et al. 2022 (LLM.int8), with
// the layouts of the files that transformers reads.

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/base/result.h"
#include "kernels/ops/dtype.h"
#include "models/convert/json_file.h"
#include "models/safetensors/safetensors_file.h"

namespace hearth::models {

/// 32 inputs of one output: the values are level * scale.
struct PackedBlock {
  std::array<int32_t, 32> levels{};
  float scale = 0;
};

/// (rows, cols), one row per output. Immutable; refers to the bytes of its parts.
class PackedMatrix {
 public:
  virtual ~PackedMatrix() = default;
  virtual double value(uint64_t row, uint64_t col) const = 0;
  /// The type that holds the same whole numbers; nothing: `why_rounded` has the reason.
  virtual std::optional<kernels::DType> kept_type() const { return std::nullopt; }
  /// Whether that type's scales are rounded to F16, which changes a value by at most 2^-11 of it.
  virtual bool rounds_scales() const { return false; }
  virtual std::string why_rounded() const { return {}; }
  /// The type to round to unless another one is asked for; nothing: one must be asked for.
  virtual std::optional<kernels::DType> rounded_type() const { return std::nullopt; }
  /// With a kept type: of columns [col, col + 32), col a multiple of 32.
  virtual PackedBlock block(uint64_t, uint64_t) const { return {}; }
};

struct PackedParts {
  std::shared_ptr<const PackedMatrix> matrix;
  std::array<uint64_t, 2> shape{};  ///< rows, cols
  std::vector<std::string> used;    ///< names of the parts
};

/// How a folder's matrices are packed.
class PackedFormat {
 public:
  using Find = std::function<const SafeTensor*(const std::string& name)>;

  virtual ~PackedFormat() = default;
  /// The matrix whose parts are named "{base}.*"; nothing: there is none. kCorrupt names a tensor
  /// whose type or shape is not that of the others, and a scale that is not finite.
  virtual Result<std::optional<PackedParts>> make(const std::string& base,
                                                  const Find& find) const = 0;
  /// Inputs from this magnitude on are not quantized in products with these matrices; 0: all are.
  virtual float outliers_from() const { return 0; }
};

/// From `quantization_config`; null without it, and for MXFP4. kUnsupported names a method or
/// setting that this build does not read; kCorrupt a key of another type.
Result<std::unique_ptr<PackedFormat>> packed_format(const Json& config);

}  // namespace hearth::models
