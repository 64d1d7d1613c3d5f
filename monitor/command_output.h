#pragma once
// What another program prints.

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::monitor {

/// Runs `program` with `arguments` until it ends; its output. Where it fails, the end of what it
/// said on standard error. It is killed, and that is kCancelled, when `stop` is set; kTooLarge
/// beyond `max_bytes`.
Result<std::string> output_of(const std::filesystem::path& program,
                              const std::vector<std::string>& arguments, size_t max_bytes,
                              const std::atomic<bool>& stop);

}  // namespace hearth::monitor
