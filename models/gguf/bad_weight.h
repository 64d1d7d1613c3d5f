#pragma once
// Finds weights of a file that are not finite numbers.

#include <functional>
#include <optional>
#include <string>

#include "models/gguf/gguf_file.h"

namespace hearth::models {

/// A sentence that names the first tensor, in the file's order, with a NaN or an infinity, and the
/// value's place. Nothing if all values are finite, or after `stop` returned true (called every 64
/// Ki values). Reads and dequantizes the whole file.
std::optional<std::string> find_bad_weight(const GgufFile& file, const std::function<bool()>& stop);

}  // namespace hearth::models
