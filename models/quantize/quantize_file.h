#pragma once
// A model file in another type, tensor by tensor and in bounded memory.

#include <filesystem>

#include "kernels/base/result.h"
#include "models/gguf/gguf_file.h"
#include "models/quantize/mix.h"
#include "models/random_model.h"

namespace hearth::models {

struct QuantizeOptions {
  Mix mix{};
  int32_t num_threads = 1;
  /// Take matrices that are quantized already, below eight bits: what was lost is lost twice.
  bool requantize = false;
};

struct QuantizeReport {
  uint64_t bytes_before = 0;  ///< of tensors
  uint64_t bytes_after = 0;
  uint64_t num_tensors = 0;
  uint64_t num_changed = 0;
};

/// Writes `in` to `out` (PartFile: whole or not at all) with the mix's types; metadata as it was,
/// but for general.file_type. Memory beside the file's pages: a few MiB per thread.
/// kUnsupported: a tensor's type, or one below eight bits without `requantize`; kInvalidArgument
/// names the tensor with a value that the type cannot hold; kCancelled where `progress` said so.
Result<QuantizeReport> quantize_file(const GgufFile& in, const std::filesystem::path& out,
                                     const QuantizeOptions& options,
                                     const WriteProgressFn& progress);

}  // namespace hearth::models
