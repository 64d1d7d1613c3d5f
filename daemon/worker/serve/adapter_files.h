#pragma once
// Opens the files of adapters that requests name, and keeps the last ones open. Used by one thread.

#include <cstdint>
#include <filesystem>
#include <list>
#include <memory>
#include <string>

#include "engine/request.h"
#include "kernels/base/result.h"
#include "models/gguf/fingerprint.h"

namespace hearth::worker {

class AdapterFiles {
 public:
  /// Digests are kept in `digests`, if that is not empty (cached_fingerprint).
  explicit AdapterFiles(std::filesystem::path digests = {}) : digests_(std::move(digests)) {}

  /// The file at `path`, read and checked anew if it has changed. Errors name the file: of
  /// GgufFile::open, and kCorrupt for values that are not finite.
  Result<std::shared_ptr<engine::AdapterFile>> open(const std::filesystem::path& path);

 private:
  static constexpr size_t kMostOpen = 8;
  struct Entry {
    std::filesystem::path path;
    models::FileIdentity identity;
    std::shared_ptr<engine::AdapterFile> file;
  };

  std::filesystem::path digests_;
  std::list<Entry> entries_;  ///< the last one used first
};

}  // namespace hearth::worker
