#pragma once
// The files next to this one.

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "tests/paths.h"

namespace hearth::models {

inline std::string read_golden(const std::string& name) {
  std::ifstream in(hearth::tests::source_path("tests/golden/templates/") + name, std::ios::binary);
  REQUIRE_MESSAGE(in.is_open(), name);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace hearth::models
