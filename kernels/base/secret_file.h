#pragma once
// A file of random bytes that stays secret: made with mode 0600 when it is first wanted, the same
// after every restart.

#include <cstddef>
#include <filesystem>
#include <span>

#include "kernels/base/result.h"

namespace hearth {

/// Reads `file`, which has as many bytes as `secret`, or makes it. Anything else of that name
/// is set aside (".damaged") and replaced. Processes that do so at the same time get the same
/// bytes. kIo.
Result<void> read_or_make_secret(const std::filesystem::path& file, std::span<std::byte> secret);

}  // namespace hearth
