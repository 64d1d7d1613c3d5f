#pragma once
// Programs that tests start with their own environment still need the sanitizers' options: the
// suppressions, and that a report is a failure.

#include <cstdlib>
#include <string>
#include <vector>

namespace hearth::tests {

/// "ASAN_OPTIONS=..." and similar variables that are set for this process.
inline std::vector<std::string> sanitizer_variables() {
  std::vector<std::string> variables;
  for (const char* name : {"ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"}) {
    if (const char* value = std::getenv(name)) variables.push_back(std::string(name) + "=" + value);
  }
  return variables;
}

}  // namespace hearth::tests
