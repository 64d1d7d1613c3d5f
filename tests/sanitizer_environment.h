#pragma once
// Programs that tests start with an environment of their own still need what the sanitizers were
// told: where the suppressions are, and that a report is a failure.

#include <cstdlib>
#include <string>
#include <vector>

namespace hearth::tests {

/// "ASAN_OPTIONS=..." and the like, as far as they are set for this process.
inline std::vector<std::string> sanitizer_variables() {
  std::vector<std::string> variables;
  for (const char* name : {"ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"}) {
    if (const char* value = std::getenv(name)) variables.push_back(std::string(name) + "=" + value);
  }
  return variables;
}

}  // namespace hearth::tests
