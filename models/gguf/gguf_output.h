#pragma once
// A model file while it is written: its header, then its tensors, with progress reports.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>

#include "kernels/base/result.h"
#include "models/gguf/part_file.h"

namespace hearth::models {

/// Reports progress; returning false stops the work.
using WriteProgressFn = std::function<bool(uint64_t bytes_done, uint64_t bytes_total)>;

/// A PartFile: complete or not at all. Keeps a reference to `progress`, which may be null.
class GgufOutput {
 public:
  static Result<GgufOutput> create(const std::filesystem::path& path, uint64_t bytes_total,
                                   const WriteProgressFn& progress);

  /// Reports progress, then writes. kCancelled if `progress` returned false.
  Result<void> append(std::span<const std::byte> bytes);
  /// Zeros up to the next multiple of kGgufAlignment, as after each tensor.
  Result<void> pad();
  Result<void> finish();

 private:
  GgufOutput(PartFile file, uint64_t bytes_total, const WriteProgressFn& progress)
      : file_(std::move(file)), progress_(progress), bytes_total_(bytes_total) {}

  PartFile file_;
  const WriteProgressFn& progress_;
  uint64_t bytes_total_;
  uint64_t bytes_done_ = 0;
};

}  // namespace hearth::models
