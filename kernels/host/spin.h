#pragma once
// Waiting without giving up the CPU, for what usually takes a few microseconds.

#include <chrono>

namespace hearth::kernels {

/// Long enough to bridge the serial work between two ops of a step, short enough that an idle
/// engine shows 0 % CPU.
inline constexpr auto kSpin = std::chrono::microseconds(50);

inline void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");  // `yield` takes no time on cores with one thread
#endif
}

/// Waits for `done`; false if kSpin passed first.
template <typename Done>
bool spin_until(const Done& done) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  while (true) {
    for (int i = 0; i < 64; ++i) {
      if (done()) return true;
      spin_pause();
    }
    if (std::chrono::steady_clock::now() >= deadline) return done();
  }
}

}  // namespace hearth::kernels
