#pragma once
// The text that a verb reads.

#include <string>

#include "kernels/base/result.h"

namespace hearth::worker {

/// The whole file, or stdin if `path` is "-". kIo: it cannot be read, or is empty.
Result<std::string> read_text(const std::string& path);

}  // namespace hearth::worker
