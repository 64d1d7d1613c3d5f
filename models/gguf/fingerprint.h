#pragma once
// Identifies a model file by its content: the root of every prefix hash.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "kernels/base/result.h"
#include "models/gguf/file_mapping.h"

namespace hearth::models {

/// XXH3-128 of all bytes, 32 hex digits (canonical, most significant first). Reads every page, at
/// about the disk's speed for a cold file. Does not defend against crafted collisions.
std::string fingerprint(std::span<const std::byte> content);

class GgufFile;
class WeightCheck;

/// Of a parsed file: of all its parts, one after another.
std::string fingerprint(const GgufFile& file);

/// The same of open files, one after another, read in pieces of 1 MiB from the start of each,
/// wherever its descriptor stands. Each piece is also given to `check` while it is in the CPU
/// cache. kNotFound, kForbidden, kIo.
Result<std::string> fingerprint_files(std::span<const ReadableFile> files,
                                      WeightCheck* check = nullptr);
Result<std::string> fingerprint_file(const std::filesystem::path& path);

/// Equal identities imply equal content as far as the file system knows. A caller may use it as the
/// key of a cached fingerprint instead of reading the file again. A program can set the time of
/// modification back (cp -p does), but not the time of change.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t size_bytes = 0;
  int64_t mtime_ns = 0;
  int64_t ctime_ns = 0;

  /// Of the file that `path` leads to, following links. kNotFound, kForbidden, kIo.
  static Result<FileIdentity> of(const std::filesystem::path& path);
  /// Of the open file, even if its name leads to another file now. kIo.
  static Result<FileIdentity> of(const ReadableFile& file);
  bool operator==(const FileIdentity&) const = default;
};
/// Of each file. kIo.
Result<std::vector<FileIdentity>> identities_of(std::span<const ReadableFile> files);

}  // namespace hearth::models
