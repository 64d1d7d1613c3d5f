#pragma once
// The open file that a model's weights come from, and what it held when it was opened. While
// weights are packed late the file is still read, and anybody who may write it can change it.
// Thread: the engine's.

#include <filesystem>
#include <string>

#include "kernels/base/result.h"
#include "models/gguf/fingerprint.h"
#include "models/gguf/gguf_file.h"

namespace hearth::worker {

class ModelSource {
 public:
  /// The digest of `file`, which was opened and not parsed, as cached_fingerprint gives it, and the
  /// identity that the file had before and after that. Waits until the file is a little older than
  /// the file system's clock can tell apart. kCorrupt where it changed meanwhile; errors of
  /// cached_fingerprint.
  static Result<ModelSource> open(const models::GgufFile& file,
                                  const std::filesystem::path& digests);

  const std::string& digest() const { return digest_; }
  /// Whether the file holds what it held. One system call; only after a change of its identity that
  /// need not be one of content (it was renamed, linked, had its mode changed) the whole file is
  /// read again. kCorrupt where the content changed.
  Result<void> check();

 private:
  ModelSource(models::ReadableFile file, models::FileIdentity identity)
      : file_(std::move(file)), identity_(identity) {}

  models::ReadableFile file_;
  models::FileIdentity identity_;
  std::string digest_;
};

}  // namespace hearth::worker
