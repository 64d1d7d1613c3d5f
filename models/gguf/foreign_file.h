#pragma once
// Recognizes files that were given as a model file and are something else.

#include <cstddef>
#include <span>
#include <string>

namespace hearth::models {

/// A sentence about a file that does not begin with GGUF's magic: what it is and what to do. Empty
/// if the format is unknown. Reads only the first bytes.
std::string describe_foreign_file(std::span<const std::byte> content);

}  // namespace hearth::models
