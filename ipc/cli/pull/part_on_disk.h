#pragma once
// The growing file: NAME.part, and NAME.part.tag with the server's tag of the version it is of.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "ipc/cli/pull/sha256.h"
#include "kernels/base/result.h"

namespace hearth::cli {

class PartOnDisk {
 public:
  /// Opens or makes it, locked against other processes (kBusy). What is there already is hashed.
  static Result<PartOnDisk> open(const std::filesystem::path& target);
  ~PartOnDisk();
  PartOnDisk(PartOnDisk&& other) noexcept;
  PartOnDisk& operator=(PartOnDisk&&) = delete;

  uint64_t size_bytes() const { return size_bytes_; }
  /// Of the version that the bytes are of; empty: not known.
  const std::string& tag() const { return tag_; }
  Result<void> set_tag(const std::string& tag);
  /// kCorrupt as soon as it shows that this is no GGUF file.
  Result<void> append(std::span<const std::byte> bytes);
  /// Back to nothing.
  Result<void> restart();
  /// kOutOfMemory where the disk has no room for so many bytes more.
  Result<void> check_room(uint64_t more_bytes) const;
  /// The content's hash. Nothing may be appended afterwards.
  std::string finish_hash() { return hash_.finish(); }
  /// On disk and under its name.
  Result<void> commit();
  /// Removed, tag and all.
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
