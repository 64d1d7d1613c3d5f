#pragma once
// Where the sources and the build are. Only paths.cpp is compiled with these paths: every other
// unit is the same in all checkouts, and the compiler cache finds it.

#include <string>

namespace hearth::tests {

std::string source_dir();
/// A file of the source tree, such as "models/demo/tales.gguf".
std::string source_path(const std::string& relative);
/// The build folder, whose programs are in bin/.
std::string binary_dir();

}  // namespace hearth::tests
