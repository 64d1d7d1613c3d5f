#pragma once
// Digests of model files read before, so that loading a model again reads its file once instead of
// twice. An entry is identified by device, inode, size, and modification and change times; a
// damaged or missing entry is a miss.

#include <filesystem>
#include <string>

#include "kernels/base/result.h"
#include "models/gguf/file_mapping.h"
#include "models/gguf/gguf_file.h"

namespace hearth::worker {

/// models::fingerprint_file(file), or the entry in `folder` (private to us; empty: none) that
/// matches the file's current identity. Reading the file also checks its weights (`weights` is the
/// same file, parsed), so an entry exists only for a file whose weights are finite. Errors of
/// reading the file and of that check.
Result<std::string> cached_fingerprint(const models::ReadableFile& file,
                                       const models::GgufFile& weights,
                                       const std::filesystem::path& folder);

}  // namespace hearth::worker
