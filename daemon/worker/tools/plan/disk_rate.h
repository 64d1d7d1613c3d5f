#pragma once
// The rate at which a file can be read from its disk.

#include <filesystem>

#include "kernels/base/result.h"

namespace hearth::worker {

/// Bytes per second, measured for at most about a second, past the page cache. 0: the file system
/// has no reads past it. kNotFound, kForbidden, kIo.
Result<double> measure_disk(const std::filesystem::path& file);

}  // namespace hearth::worker
