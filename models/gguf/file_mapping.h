#pragma once
// Files opened for reading, and files mapped read-only.

#include <cstddef>
#include <filesystem>
#include <span>
#include <utility>

#include "kernels/base/result.h"
#include "kernels/ops/host_tensor.h"

namespace hearth::models {

/// kNotFound, kForbidden or kIo of an errno: "PATH: open: Permission denied".
Error system_error(const std::filesystem::path& path, const char* what, int number);

/// A regular file open for reading. Owns the descriptor.
class ReadableFile {
 public:
  /// system_error(), or kInvalidArgument if `path` is not a regular file.
  static Result<ReadableFile> open(const std::filesystem::path& path);
  ReadableFile() = default;  ///< owns no file
  ~ReadableFile();
  ReadableFile(ReadableFile&& other) noexcept;
  ReadableFile& operator=(ReadableFile&& other) noexcept;

  int fd() const { return fd_; }
  size_t size_bytes() const { return size_bytes_; }
  /// The name under which it was opened, for messages.
  const std::filesystem::path& path() const { return path_; }
  /// The same open file under a descriptor of its own. kIo.
  Result<ReadableFile> duplicate() const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  size_t size_bytes_ = 0;
};

/// Mapped for as long as the object lives. If another process truncates the file meanwhile, access
/// raises SIGBUS, which ends the process. Serving from it (mapping = "file") accepts that: the
/// broker then starts another worker.
class FileMapping final : public kernels::TensorSource {
 public:
  FileMapping() = default;
  /// Errors as ReadableFile::open, kIo. An empty file maps to no bytes.
  static Result<FileMapping> open(const std::filesystem::path& path);
  ~FileMapping() override;
  FileMapping(FileMapping&& other) noexcept;
  FileMapping& operator=(FileMapping&& other) noexcept;

  std::span<const std::byte> bytes() const { return bytes_; }
  const ReadableFile& file() const { return file_; }
  /// Whether the part can be read without waiting for a disk, judged by a sample. Always false if
  /// the file system does not report it, or outside the mapping.
  bool in_page_cache(std::span<const std::byte> part) const;
  /// Removes the complete pages of `part` from this process's resident memory; they are read from
  /// the file again when needed. A part outside the mapping is ignored.
  void drop_pages(std::span<const std::byte> part) const override;

 private:
  explicit FileMapping(ReadableFile file) : file_(std::move(file)) {}
  bool contains(std::span<const std::byte> part) const;

  ReadableFile file_;
  std::span<const std::byte> bytes_;
};

}  // namespace hearth::models
