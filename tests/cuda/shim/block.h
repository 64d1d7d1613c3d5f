#pragma once
// One block of a launch: its threads as fibers, its barrier, its warps' exchanges.

#include <cuda_runtime.h>

#include <functional>
#include <random>
#include <string>

namespace hearth::shim {

/// The order in which threads and blocks run.
class Order {
 public:
  explicit Order(uint64_t seed) : seed_(seed), random_(seed) {}
  /// Index of the next of `count` waiting ones.
  size_t pick(size_t count) { return seed_ == 0 ? 0 : random_() % count; }
  bool ascending() const { return seed_ == 0; }

 private:
  uint64_t seed_;
  std::mt19937_64 random_;
};

/// Device memory that is not cudaMalloc's: counted as in use. False if there is too little, or if
/// the test refuses an allocation.
bool take_device_bytes(size_t bytes);
void return_device_bytes(size_t bytes);
/// No stream has work left.
bool device_idle();

/// Runs `thread` once for every thread of one block. Returns the reason if it could not end.
std::string run_block(const cudaLaunchConfig_t& config, uint3 block_idx,
                      const std::function<void()>& thread, Order& order);

}  // namespace hearth::shim
