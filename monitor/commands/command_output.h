#pragma once
// Runs another program and captures its output.

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::monitor {

/// Runs `program` with `arguments` until it ends and returns its output. If it fails, the error
/// holds the end of its standard error. Setting `stop` kills it (kCancelled); kTooLarge if the
/// output exceeds `max_bytes`.
Result<std::string> output_of(const std::filesystem::path& program,
                              const std::vector<std::string>& arguments, size_t max_bytes,
                              const std::atomic<bool>& stop);

}  // namespace hearth::monitor
