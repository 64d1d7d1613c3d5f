#pragma once
// A safetensors file, viewed in place: names, types and shapes of tensors with their bytes. The
// file is untrusted: every offset is checked when it is opened.

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"
#include "kernels/ops/dtype.h"
#include "models/gguf/file_mapping.h"

namespace hearth::models {

struct SafeTensor {
  std::string name;
  std::string type;             ///< as written: "BF16", "F32", "I64"
  std::vector<uint64_t> shape;  ///< the contiguous dimension last; up to 8
  std::span<const std::byte> bytes;

  uint64_t num_elements() const;
  /// F32, F16 or BF16; kUnsupported names the tensor with another type.
  Result<kernels::DType> dtype() const;
};

/// For messages: "4096 x 128".
std::string shape_text(const std::vector<uint64_t>& shape);

/// Immutable after open(), so any thread may read it. Spans live as long as the file.
class SafetensorsFile {
 public:
  /// kNotFound, kForbidden, kIo: the system's reason. kCorrupt names the value met and the value
  /// wanted.
  static Result<SafetensorsFile> open(const std::filesystem::path& path);
  /// The same for bytes that the caller keeps.
  static Result<SafetensorsFile> parse(std::span<const std::byte> content);

  const std::map<std::string, SafeTensor, std::less<>>& tensors() const { return tensors_; }
  /// Releases the memory of pages that were read and are not needed again.
  void drop_pages(std::span<const std::byte> part) const { mapping_.drop_pages(part); }

 private:
  FileMapping mapping_;
  std::map<std::string, SafeTensor, std::less<>> tensors_;
};

}  // namespace hearth::models
