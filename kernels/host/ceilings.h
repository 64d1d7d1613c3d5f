#pragma once
// What this machine can do at most, measured: the ceilings that speeds are judged against.

#include <string>

#include "kernels/host/thread_pool.h"

namespace hearth::kernels {

struct Ceilings {
  double read_bytes_per_s = 0;  ///< all threads reading memory once, in huge pages
  double f32_ops_per_s = 0;     ///< multiply and add counted apart, all threads, from registers
  double int8_ops_per_s = 0;    ///< the same of byte dot products; 0 where there is no such unit
};

/// With the instructions of a CPU variant ("plain", "avx2", "avx512", "avx512vnni").
/// `read_bytes` is the size of the buffer read: several times the last-level cache for a true
/// figure. The best of a few runs.
Ceilings measure_ceilings(ThreadPool& pool, const std::string& variant, size_t read_bytes);

}  // namespace hearth::kernels
