#pragma once
// The files next to this one.

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <string>

namespace hearth::models {

inline std::string read_golden(const std::string& name) {
  std::ifstream in(HEARTH_SOURCE_DIR "/tests/golden/templates/" + name, std::ios::binary);
  REQUIRE_MESSAGE(in.is_open(), name);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace hearth::models
