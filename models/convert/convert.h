#pragma once
// Converts a folder of published weights (safetensors, config.json, tokenizer.json), or of heads
// that draft for another model (heads.h, eagle3.h, dflash.h), to one GGUF file.

#include <cstdint>
#include <filesystem>
#include <optional>

#include "kernels/base/result.h"
#include "kernels/ops/dtype.h"
#include "models/gguf/gguf_output.h"

namespace hearth::models {

struct ConvertOptions {
  /// The type of matrices: F32, F16 or BF16; absent: as they are stored. Vectors and the routers of
  /// experts are always F32, and what is stored in MXFP4 stays so. Packed numbers (packed_matrix.h)
  /// are rounded to this type; absent: kept without loss, or in BF16 if they are 8-bit floats.
  std::optional<kernels::DType> type;
  /// The GGUF file of the model that an EAGLE-3 head or a DFlash drafter drafts for; empty: not
  /// given.
  std::filesystem::path target = {};
  /// Leave the tokenizer out, if the folder has none: the model then accepts only token ids.
  bool without_tokenizer = false;
};

struct ConvertReport {
  std::string architecture;
  uint64_t num_tensors = 0;
  uint64_t bytes = 0;  ///< of tensors
  /// Tensors of the folder that read images or sound, or draft: not of this build's model.
  uint64_t num_left_out = 0;
  uint64_t num_kept = 0;      ///< tensors of packed numbers that were kept without loss
  uint64_t num_rescaled = 0;  ///< those whose scales alone were rounded, to F16
  uint64_t num_rounded = 0;   ///< and those that were rounded
};

/// Writes `out` (PartFile: complete or not at all). Takes a few MiB of memory in addition to the
/// files' pages. Errors of Checkpoint::open, family_keys, plan_tensors, plan_heads, plan_eagle3,
/// plan_dflash and add_tokenizer; kInvalidArgument names the tensor with a value that F16 cannot
/// hold, or whose packed numbers no type holds while no type was asked for; kCorrupt one with a
/// scale that is NaN; kCancelled if `progress` returned false.
Result<ConvertReport> convert_folder(const std::filesystem::path& folder,
                                     const std::filesystem::path& out,
                                     const ConvertOptions& options,
                                     const WriteProgressFn& progress);

}  // namespace hearth::models
