#pragma once
// The open file of a model's weights, and its digest when it was opened. While weights are packed
// late the file is still being read, and any process with write access can change it. Thread: the
// engine's.

#include <filesystem>
#include <string>

#include "kernels/base/result.h"
#include "models/gguf/fingerprint.h"
#include "models/gguf/gguf_file.h"

namespace hearth::worker {

class ModelSource {
 public:
  /// Computes the digest of `file`, which is open but not parsed, with cached_fingerprint, and
  /// compares the file's identity before and after. Waits until the file is older than the
  /// resolution of the file system's clock. kCorrupt if it changed meanwhile; errors of
  /// cached_fingerprint.
  static Result<ModelSource> open(const models::GgufFile& file,
                                  const std::filesystem::path& digests);

  const std::string& digest() const { return digest_; }
  /// Checks that the file's content is unchanged, with one system call. Reads the whole file again
  /// only if its identity changed in a way that may leave the content alone (renamed, linked, mode
  /// changed). kCorrupt if the content changed.
  Result<void> check();

 private:
  ModelSource(models::ReadableFile file, models::FileIdentity identity)
      : file_(std::move(file)), identity_(identity) {}

  models::ReadableFile file_;
  models::FileIdentity identity_;
  std::string digest_;
};

}  // namespace hearth::worker
