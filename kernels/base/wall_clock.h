#pragma once
// The time of day, for what is shown, kept over restarts or compared with files.

#include <chrono>
#include <cstdint>

namespace hearth {

inline int64_t seconds_since_1970() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// The same with a fraction, to microseconds.
inline double fractional_seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::time_point_cast<std::chrono::microseconds>(
                                           std::chrono::system_clock::now())
                                           .time_since_epoch())
      .count();
}

}  // namespace hearth
