#pragma once
// Measures this machine's peak rates, the ceilings that speeds are compared with.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/host/thread_pool.h"

namespace hearth::kernels {

struct Ceilings {
  double read_bytes_per_s = 0;  ///< all threads read memory once, in huge pages
  double f32_ops_per_s = 0;   ///< multiply and add counted separately, all threads, from registers
  double int8_ops_per_s = 0;  ///< the same for byte dot products; 0 if the CPU has no such unit
  double half_ops_per_s = 0;  ///< the same for products of f16 on tensor cores; 0 on a CPU
};

/// Measures with the instructions of a CPU variant ("plain", "avx2", "avx2vnni", "avx512",
/// "avx512vnni"). `read_bytes` is the size of the buffer read; an accurate figure needs several
/// times the last-level cache. Returns the best of a few runs.
Ceilings measure_ceilings(ThreadPool& pool, const std::string& variant, size_t read_bytes);

/// A buffer in huge pages that all threads of a pool read.
class MemoryReader {
 public:
  /// `bytes`: rounded down to a multiple of 256 KiB, at least that.
  MemoryReader(ThreadPool& pool, size_t bytes);
  ~MemoryReader();
  MemoryReader(const MemoryReader&) = delete;
  MemoryReader& operator=(const MemoryReader&) = delete;

  size_t bytes() const { return bytes_; }
  /// Reads all of it once. Returns bytes per second; 0 if there was no memory for it.
  double read();

 private:
  ThreadPool& pool_;
  size_t bytes_;
  uint64_t* data_;
  std::vector<uint64_t> sums_;
};

}  // namespace hearth::kernels
