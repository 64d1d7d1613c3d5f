#pragma once
// Bugs stop the process: HEARTH_CHECK stays in release builds and prints the values involved. It is
// for our own invariants; bad input from a file, a client or a socket is a Result instead.

#include <fmt/core.h>

#include <string>

namespace hearth {

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& detail);

}  // namespace hearth

/// HEARTH_CHECK(cond) or HEARTH_CHECK(cond, "free={} used={}", free, used).
#define HEARTH_CHECK(condition, ...)                                                         \
  do {                                                                                       \
    if (!(condition)) [[unlikely]] {                                                         \
      ::hearth::check_failed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
    }                                                                                        \
  } while (false)
