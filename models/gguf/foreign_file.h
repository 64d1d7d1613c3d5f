#pragma once
// What a file is that was taken for a model file and is none.

#include <cstddef>
#include <span>
#include <string>

namespace hearth::models {

/// A sentence about a file that does not begin with GGUF's magic: what it is, and what to do. Empty
/// where nothing is known of it. Looks at the first bytes alone.
std::string describe_foreign_file(std::span<const std::byte> content);

}  // namespace hearth::models
