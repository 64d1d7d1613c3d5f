#pragma once
// A file that exists complete or not at all: it is written as NAME.part and renamed once all of it
// is on disk.

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>

#include "kernels/base/result.h"

namespace hearth::models {

/// Owns the file; the destructor removes one that was not finished.
class PartFile {
 public:
  /// kIo, kForbidden or kNotFound with the system's reason. A .part file left by an earlier process
  /// is overwritten.
  static Result<PartFile> create(const std::filesystem::path& path);
  ~PartFile();
  PartFile(PartFile&& other) noexcept = default;
  PartFile& operator=(PartFile&&) = delete;

  Result<void> append(std::span<const std::byte> bytes);
  /// Syncs the file to disk and gives it its name.
  Result<void> finish();

 private:
  PartFile(std::filesystem::path path, std::FILE* file) : path_(std::move(path)), file_(file) {}
  std::filesystem::path part() const { return path_.string() + ".part"; }

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;  // null: finished, or moved away
};

}  // namespace hearth::models
