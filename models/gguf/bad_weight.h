#pragma once
// Which weights of a file are no numbers.

#include <functional>
#include <optional>
#include <string>

#include "models/gguf/gguf_file.h"

namespace hearth::models {

/// The first tensor, in the file's order, that holds a NaN or an infinity, in a sentence with the
/// value's place. Nothing where all values are finite, or once `stop` says so (asked every 64 Ki
/// values). Reads and dequantizes the whole file.
std::optional<std::string> find_bad_weight(const GgufFile& file, const std::function<bool()>& stop);

}  // namespace hearth::models
