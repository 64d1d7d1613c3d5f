#pragma once
// Timestamps on the device's own clock: how long the device takes for its work and how long it is
// idle between calls. Called from the thread that calls the ops, outside captures.

#include <cstdint>

namespace hearth::kernels {

struct DeviceClock {
  /// Only this many of the latest stamps can be queried.
  static constexpr uint64_t kStamps = 64;
  /// Places a stamp after everything called so far; stamps ascend from 1.
  uint64_t (*stamp)(void* state) = nullptr;
  /// Microseconds from one stamp to a later one. Waits for both.
  double (*us_between)(void* state, uint64_t from, uint64_t to) = nullptr;
};

}  // namespace hearth::kernels
