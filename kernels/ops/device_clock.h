#pragma once
// When a device came to places in its work, on its own clock: what it does between two calls, and
// for how long it does nothing. Called from the thread that calls the ops, outside of captures.

#include <cstdint>

namespace hearth::kernels {

struct DeviceClock {
  /// Those that can still be asked for are the last so many.
  static constexpr uint64_t kStamps = 64;
  /// A stamp behind what was called so far; they ascend from 1.
  uint64_t (*stamp)(void* state) = nullptr;
  /// Microseconds from one stamp to a later one. Waits for both.
  double (*us_between)(void* state, uint64_t from, uint64_t to) = nullptr;
};

}  // namespace hearth::kernels
