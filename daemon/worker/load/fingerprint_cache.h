#pragma once
// Digests of files that were read before, so that a model that comes back to memory is read once
// and not twice. Known by device, inode, size and times of modification and change; a damaged or
// missing entry is a miss.

#include <filesystem>
#include <string>

#include "kernels/base/result.h"
#include "models/gguf/file_mapping.h"
#include "models/gguf/gguf_file.h"

namespace hearth::worker {

/// models::fingerprint_file(file), or what an entry of `folder` (ours alone; empty: none) says of
/// the file as it is now. Whenever the file is read, its weights are checked on the way (`weights`
/// is the same file, parsed): an entry exists only of a file whose weights are finite. Errors of
/// reading the file and of that check.
Result<std::string> cached_fingerprint(const models::ReadableFile& file,
                                       const models::GgufFile& weights,
                                       const std::filesystem::path& folder);

}  // namespace hearth::worker
