#pragma once
// Digests of model files read before, so that loading a model again reads its file once instead of
// twice. An entry is identified by device, inode, size, and modification and change times of each
// part of the model; a damaged or missing entry is a miss.

#include <filesystem>
#include <span>
#include <string>

#include "kernels/base/result.h"
#include "models/gguf/file_mapping.h"
#include "models/gguf/gguf_file.h"

namespace hearth::worker {

/// models::fingerprint_files(files), or the entry in `folder` (private to us; empty: none) that
/// matches the files' current identities. Reading the files also checks their weights (`weights`
/// are the same files, parsed), so an entry exists only for files whose weights are finite. Errors
/// of reading the files and of that check.
Result<std::string> cached_fingerprint(std::span<const models::ReadableFile> files,
                                       const models::GgufFile& weights,
                                       const std::filesystem::path& folder);
/// The same of the files of `weights`, always read.
Result<std::string> computed_fingerprint(const models::GgufFile& weights);

}  // namespace hearth::worker
