#include "tests/paths.h"

namespace hearth::tests {

std::string source_dir() { return HEARTH_SOURCE_DIR; }
std::string source_path(const std::string& relative) { return source_dir() + "/" + relative; }
std::string binary_dir() { return HEARTH_BINARY_DIR; }

}  // namespace hearth::tests
