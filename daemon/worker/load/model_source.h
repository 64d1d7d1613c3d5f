#pragma once
// The open files of a model's weights (several if it is split), and their digest when they were
// opened. While weights are packed late the files are still being read, and any process with write
// access can change them. Thread: the engine's.

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/base/result.h"
#include "models/gguf/fingerprint.h"
#include "models/gguf/gguf_file.h"

namespace hearth::worker {

class ModelSource {
 public:
  /// Computes the digest of the files of `file`, which are open but not parsed, with
  /// cached_fingerprint, and compares their identities before and after. Waits until the files are
  /// older than the resolution of the file system's clock. kCorrupt if one changed meanwhile;
  /// errors of cached_fingerprint.
  static Result<ModelSource> open(const models::GgufFile& file,
                                  const std::filesystem::path& digests);

  const std::string& digest() const { return digest_; }
  /// Checks that the files' content is unchanged, with one system call each. Reads all of it again
  /// only if an identity changed in a way that may leave the content alone (renamed, linked, mode
  /// changed). kCorrupt if the content changed.
  Result<void> check();

 private:
  /// The first file whose identity is not the one in `now`.
  std::optional<size_t> changed_since(std::span<const models::FileIdentity> now) const;

  std::vector<models::ReadableFile> files_;
  std::vector<models::FileIdentity> identities_;  ///< of each
  std::string digest_;
};

}  // namespace hearth::worker
