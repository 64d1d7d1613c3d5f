#pragma once
// Builds a GGUF file (version 3, little endian; layout in gguf_file.cpp). Holds everything in
// memory until it is written, so models are limited by the size of RAM.
//
// The caller chooses keys and tensor names and uses each once (HEARTH_CHECK).

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"
#include "kernels/ops/dtype.h"
#include "models/gguf/gguf_value.h"

namespace hearth::models {

/// Alignment of tensor data if the file gives no other.
inline constexpr uint64_t kGgufAlignment = 32;

class GgufWriter {
 public:
  void set_u32(std::string_view key, uint32_t value);
  void set_f32(std::string_view key, float value);
  void set_bool(std::string_view key, bool value);
  void set_string(std::string_view key, std::string_view value);
  void set_strings(std::string_view key, std::span<const std::string> values);
  void set_i32s(std::string_view key, std::span<const int32_t> values);
  void set_bools(std::string_view key, const std::vector<bool>& values);
  void set_f32s(std::string_view key, std::span<const float> values);
  /// Copies an entry of another file unchanged.
  void copy(const GgufEntry& entry);

  /// Adds a tensor whose bytes are already encoded. dims: 1 to 4, the contiguous one first; `bytes`
  /// has the size that dims and dtype imply.
  void add_tensor(std::string_view name, std::span<const uint64_t> dims, kernels::DType dtype,
                  std::vector<std::byte> bytes);
  /// The same from floats, which are encoded as `dtype`: F32, F16 or Q8_0 (rows then are multiples
  /// of 32).
  void add_floats(std::string_view name, std::span<const uint64_t> dims, kernels::DType dtype,
                  std::span<const float> values);

  /// Declares a tensor whose bytes the caller writes after header(). bytes() and write() must then
  /// not be called.
  void declare_tensor(std::string_view name, std::span<const uint64_t> dims, kernels::DType dtype);

  /// Everything before the tensors' data, padding included. The tensors follow in the order in
  /// which they were added, each padded to a multiple of kGgufAlignment.
  std::vector<std::byte> header() const;
  std::vector<std::byte> bytes() const;
  /// Writes a temporary file and renames it to `path`, so no reader sees a partial file. kIo,
  /// kForbidden, kNotFound.
  Result<void> write(const std::filesystem::path& path) const;

 private:
  struct Tensor {
    std::string name;
    std::vector<uint64_t> dims;
    kernels::DType dtype;
    uint64_t size;
    std::vector<std::byte> bytes;  // empty for a tensor that was only declared
  };
  void begin_entry(std::string_view key, GgufType type);
  void check_complete() const;

  std::vector<std::string> keys_;
  std::vector<std::byte> metadata_;  // entries as in the file
  std::vector<Tensor> tensors_;
};

}  // namespace hearth::models
