#pragma once
// Random bytes from the operating system, and SplitMix64 for reproducible numbers.

#include <cstddef>
#include <cstdint>
#include <span>

#if defined(__CUDACC__)
#define HEARTH_HOST_DEVICE __host__ __device__
#else
#define HEARTH_HOST_DEVICE
#endif

namespace hearth {

/// False if the system provides none: `out` must then not be used for secrets.
bool fill_random(std::span<std::byte> out);
/// 64 random bits for unique names. If the system provides none, derived from clock and process id.
uint64_t random_bits();

/// SplitMix64: adds kSplitMixStep to its state and mixes the sum. Source: Steele, Lea and Flood
/// 2014; the constants are Stafford's variant 13.
inline constexpr uint64_t kSplitMixStep = 0x9e3779b97f4a7c15u;
HEARTH_HOST_DEVICE constexpr uint64_t splitmix(uint64_t state) {
  state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
  state = (state ^ (state >> 27)) * 0x94d049bb133111ebu;
  return state ^ (state >> 31);
}

}  // namespace hearth
