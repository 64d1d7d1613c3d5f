#pragma once
// A partial download: NAME.part, and NAME.part.tag with the server's tag of its version.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "ipc/cli/pull/sha256.h"
#include "kernels/base/result.h"

namespace hearth::cli {

class PartOnDisk {
 public:
  /// Opens or creates it, locked against other processes (kBusy). Existing bytes are hashed.
  static Result<PartOnDisk> open(const std::filesystem::path& target);
  ~PartOnDisk();
  PartOnDisk(PartOnDisk&& other) noexcept;
  PartOnDisk& operator=(PartOnDisk&&) = delete;

  uint64_t size_bytes() const { return size_bytes_; }
  /// The tag of the version that the bytes belong to; empty: not known.
  const std::string& tag() const { return tag_; }
  Result<void> set_tag(const std::string& tag);
  /// kCorrupt as soon as the bytes cannot be a GGUF file.
  Result<void> append(std::span<const std::byte> bytes);
  /// Drops all bytes.
  Result<void> restart();
  /// kOutOfMemory if the disk has no room for this many more bytes.
  Result<void> check_room(uint64_t more_bytes) const;
  /// The content's hash. Nothing may be appended afterwards.
  std::string finish_hash() { return hash_.finish(); }
  /// Syncs the file and gives it its final name.
  Result<void> commit();
  /// Removes the file and its tag.
  void discard();

 private:
  explicit PartOnDisk(std::filesystem::path target) : target_(std::move(target)) {}
  Result<void> hash_what_is_there();
  std::filesystem::path part() const { return target_.string() + ".part"; }
  std::filesystem::path tag_file() const { return target_.string() + ".part.tag"; }

  std::filesystem::path target_;
  int fd_ = -1;
  uint64_t size_bytes_ = 0;
  std::string head_;  ///< the first four bytes
  std::string tag_;
  Sha256 hash_;
};

}  // namespace hearth::cli
