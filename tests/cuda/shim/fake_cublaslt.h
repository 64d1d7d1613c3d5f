#pragma once
// cuBLASLt's functions in plain C++, on the shim's streams: arguments are checked as the library
// would, products are f32 sums of 16-bit numbers in ascending order.

#include <cstdint>

#include "kernels/cuda/host/cublaslt.h"

namespace hearth::shim {

const kernels::CublasLtApi& fake_cublaslt();

/// The library's answers from now on; {}: it works.
struct CublasLtFaults {
  int create = 0;             ///< status of cublasLtCreate
  int heuristic = 0;          ///< likewise
  bool no_algorithm = false;  ///< the heuristic finds none
  int64_t refuse_from =
      -1;          ///< a pinned algorithm takes fewer rows than these; -1: as many as come
  int matmul = 0;  ///< status of every product
};
void set_cublaslt_faults(const CublasLtFaults& faults);

struct CublasLtCalls {
  int64_t heuristics = 0;
  int64_t pinned = 0;    ///< products with an algorithm
  int64_t unpinned = 0;  ///< and without
  int64_t alive = 0;     ///< handles and descriptors
};
CublasLtCalls cublaslt_calls();

}  // namespace hearth::shim
