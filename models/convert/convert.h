#pragma once
// A folder of published weights (safetensors, config.json, tokenizer.json) as one GGUF file.

#include <cstdint>
#include <filesystem>
#include <optional>

#include "kernels/base/result.h"
#include "kernels/ops/dtype.h"
#include "models/random_model.h"

namespace hearth::models {

struct ConvertOptions {
  /// Of matrices: F32, F16 or BF16; nothing: as they are stored. Vectors and what routes between
  /// experts are F32 always.
  std::optional<kernels::DType> type;
  /// Leave the tokenizer out, where the folder has none: only token ids can be asked then.
  bool without_tokenizer = false;
};

struct ConvertReport {
  std::string architecture;
  uint64_t num_tensors = 0;
  uint64_t bytes = 0;  ///< of tensors
};

/// Writes `out` (PartFile: whole or not at all). Memory beside the files' pages: a few MiB. Errors
/// as of Checkpoint::open, family_keys, plan_tensors, add_tokenizer; kInvalidArgument names the
/// tensor with a value that F16 cannot hold; kCancelled where `progress` said so.
Result<ConvertReport> convert_folder(const std::filesystem::path& folder,
                                     const std::filesystem::path& out,
                                     const ConvertOptions& options,
                                     const WriteProgressFn& progress);

}  // namespace hearth::models
