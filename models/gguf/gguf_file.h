#pragma once
// A GGUF model file, parsed in place: metadata and tensors are views into the mapping. open()
// checks everything except tensor data, which may be any bytes. A model that is split into several
// files (kernels/base/split_name.h) reads as one: the first part has the metadata, each has
// tensors.
//
// Immutable after open(), so any thread may read it. Every string_view and span handed out lives as
// long as the GgufFile (parse(): as long as the bytes given).

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernels/base/result.h"
#include "kernels/ops/dtype.h"
#include "models/gguf/file_mapping.h"
#include "models/gguf/gguf_value.h"

namespace hearth::models {

struct GgufTensor {
  std::string_view name;
  std::array<uint64_t, 4> dims = {1, 1, 1, 1};  ///< ne[0], the contiguous one, first; all >= 1
  uint32_t num_dims = 0;                        ///< 1 to 4; the rest of `dims` is 1
  uint32_t type_id = 0;                         ///< as in the file
  std::optional<kernels::DType> dtype;          ///< absent for a type this build does not know
  std::span<const std::byte> bytes;             ///< empty if dtype is absent

  uint64_t num_elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  /// "[64,512]"
  std::string shape() const;
  /// "Q8_0", or "type 77" if this build does not know it.
  std::string type_name() const;
};

/// One file, all of it.
struct GgufPart {
  std::string name;  ///< of the file, for messages
  std::span<const std::byte> content;
  uint64_t begin = 0;                            ///< bytes of all parts before it
  std::shared_ptr<const FileMapping> mapping{};  ///< null for bytes that the caller keeps
};

class GgufFile {
 public:
  /// Opens the file; of a split model all parts, named by any of them, or by the model's name in
  /// their folder. kNotFound, kForbidden, kIo: the system's reason, or the parts that are missing.
  /// kCorrupt names the key or tensor, the value met and the value wanted, and of a split model the
  /// file. kUnsupported: another version or byte order.
  static Result<GgufFile> open(const std::filesystem::path& path);
  /// The same for bytes that the caller keeps. `name` is returned by name().
  static Result<GgufFile> parse(std::span<const std::byte> content, std::string name);
  /// The same for all parts of a split model, at least one, the first part first.
  static Result<GgufFile> parse_parts(std::span<const std::span<const std::byte>> contents,
                                      std::string name);

  /// File name without suffix, and without the number of a part.
  const std::string& name() const { return name_; }
  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }
  /// At least one.
  std::span<const GgufPart> parts() const { return parts_; }
  /// Of all parts.
  uint64_t file_bytes() const { return parts_.back().begin + parts_.back().content.size(); }
  /// The part that holds `bytes`, such as a tensor's.
  const GgufPart& part_of(std::span<const std::byte> bytes) const;
  /// Of a split model without its keys `split.*`, so that they are those of the unsplit one.
  std::span<const GgufEntry> metadata() const { return metadata_; }
  std::span<const GgufTensor> tensors() const { return tensors_; }

  /// Null if the file has no such key.
  const GgufEntry* find(std::string_view key) const;
  /// Null if the file has no such tensor.
  const GgufTensor* find_tensor(std::string_view tensor_name) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }

  /// The value of `key`; kCorrupt names the key if it is missing, of another type, or does not fit.
  /// Integers of any width are accepted if the value fits; F64 is accepted as float if finite. T:
  /// uint32_t, int32_t, uint64_t, float, bool, std::string_view, GgufStrings, GgufNumbers<int32_t>,
  /// GgufNumbers<float>.
  template <typename T>
  Result<T> get(std::string_view key) const;
  /// The same; `fallback` if the key is missing. A key that is present must be valid.
  template <typename T>
  Result<T> get_or(std::string_view key, T fallback) const {
    if (!has(key)) return fallback;
    return get<T>(key);
  }

  /// Hex digest of the content if the caller set it (see models/gguf/fingerprint.h); else empty.
  const std::string& fingerprint() const { return fingerprint_; }
  void set_fingerprint(std::string hex) { fingerprint_ = std::move(hex); }

  /// The open files of all parts, under descriptors of their own; none after parse(). kIo.
  Result<std::vector<ReadableFile>> duplicate_files() const;

  /// Releases the memory of file pages that were read and are not needed again. `bytes` lies in one
  /// part.
  void drop_pages(std::span<const std::byte> bytes) const;
  /// Whether `bytes` of one part can be read without waiting for a disk. False after parse().
  bool is_cached(std::span<const std::byte> bytes) const;
  /// Returns a handle that keeps `bytes` of one part mapped as long as it is held, even after this
  /// object is gone. Null after parse().
  std::shared_ptr<const kernels::TensorSource> keep_mapped(std::span<const std::byte> bytes) const;

 private:
  class Parser;
  /// Parses a file by itself, whether or not it is one of several parts.
  static Result<GgufFile> parse_part(GgufPart part);
  static Result<GgufFile> join(std::vector<GgufPart> parts, std::string name);
  Result<void> append(GgufFile next);
  Result<void> check_all_there() const;
  void remove_split_keys();

  std::string name_;
  std::vector<GgufPart> parts_;
  uint32_t version_ = 0;
  uint64_t alignment_ = 0;
  std::vector<GgufEntry> metadata_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, size_t> metadata_index_;
  std::unordered_map<std::string_view, size_t> tensor_index_;
  std::string fingerprint_;
};

/// Text from a file made safe for a message: control and non-ASCII bytes as \xNN, truncated to 128
/// bytes.
std::string printable(std::string_view text);

}  // namespace hearth::models
