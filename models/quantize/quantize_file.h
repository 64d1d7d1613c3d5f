#pragma once
// Rewrites a model file with other types, tensor by tensor and in bounded memory.

#include <filesystem>

#include "kernels/base/result.h"
#include "models/gguf/gguf_file.h"
#include "models/gguf/gguf_output.h"
#include "models/quantize/importance.h"
#include "models/quantize/input_scales.h"
#include "models/quantize/mix.h"

namespace hearth::models {

struct QuantizeOptions {
  Mix mix{};
  int32_t num_threads = 1;
  /// Accept matrices that are already quantized below eight bits, although their errors add up.
  bool requantize = false;
  /// Errors are weighted by it if it is given; it outlives the call.
  const ImportanceMatrix* importance = nullptr;
  /// Inputs that are scaled first, if given; found in the same file.
  const InputScales* scales = nullptr;
};

struct QuantizeReport {
  uint64_t bytes_before = 0;  ///< of tensors
  uint64_t bytes_after = 0;
  uint64_t num_tensors = 0;
  uint64_t num_changed = 0;
  uint64_t num_weighted = 0;  ///< written with an importance matrix
};

/// Writes `in` to `out` (PartFile: complete or not at all) with the mix's types. Scales of whole
/// matrices (tensor_scales.h) become part of these. Metadata is unchanged except general.file_type.
/// Takes a few MiB of memory per thread in addition to the file's pages. kUnsupported: a tensor's
/// type, or one below eight bits without `requantize`; kInvalidArgument names the tensor with a
/// value that the type cannot hold, or that the importance matrix lacks (check_fits; a layer's
/// matrix that is written below eight bits, layers for drafting aside); kCancelled if `progress`
/// returned false.
Result<QuantizeReport> quantize_file(const GgufFile& in, const std::filesystem::path& out,
                                     const QuantizeOptions& options,
                                     const WriteProgressFn& progress);

}  // namespace hearth::models
