#pragma once
// Builds a GGUF file (version 3, little endian; layout in gguf_file.cpp). Holds everything in
// memory until it is written: for converted and generated models up to the size of RAM.
//
// Keys and tensor names are the caller's own and used once each (HEARTH_CHECK).

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

/// Of tensor data, where the file names no other.
inline constexpr uint64_t kGgufAlignment = 32;

class GgufWriter {
 public:
  void set_u32(std::string_view key, uint32_t value);
  void set_f32(std::string_view key, float value);
  void set_bool(std::string_view key, bool value);
  void set_string(std::string_view key, std::string_view value);
  void set_strings(std::string_view key, std::span<const std::string> values);
  void set_i32s(std::string_view key, std::span<const int32_t> values);
  void set_f32s(std::string_view key, std::span<const float> values);
  /// An entry of another file as it is there.
  void copy(const GgufEntry& entry);

  /// A tensor of bytes as they will be in the file. dims: 1 to 4, the contiguous one first; `bytes`
  /// has the size that dims and dtype give.
  void add_tensor(std::string_view name, std::span<const uint64_t> dims, kernels::DType dtype,
                  std::vector<std::byte> bytes);
  /// The same from floats, rounded to `dtype`: F32, F16 or Q8_0 (rows then are multiples of 32).
  void add_floats(std::string_view name, std::span<const uint64_t> dims, kernels::DType dtype,
                  std::span<const float> values);

  /// A tensor whose bytes somebody else writes behind header(). Then neither bytes() nor write().
  void declare_tensor(std::string_view name, std::span<const uint64_t> dims, kernels::DType dtype);

  /// Everything in front of the tensors' data, padding included. The tensors follow in the order in
  /// which they were added, each padded to a multiple of kGgufAlignment.
  std::vector<std::byte> header() const;
  std::vector<std::byte> bytes() const;
  /// Writes beside `path` and renames, so nobody sees half a file. kIo, kForbidden, kNotFound.
  Result<void> write(const std::filesystem::path& path) const;

 private:
  struct Tensor {
    std::string name;
    std::vector<uint64_t> dims;
    kernels::DType dtype;
    uint64_t size;
    std::vector<std::byte> bytes;  // none of a tensor that was only declared
  };
  void begin_entry(std::string_view key, GgufType type);
  void check_complete() const;

  std::vector<std::string> keys_;
  std::vector<std::byte> metadata_;  // entries as in the file
  std::vector<Tensor> tensors_;
};

}  // namespace hearth::models
