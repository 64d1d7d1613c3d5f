#pragma once
// Elastic memory (kernels/ops/elastic_memory.h) of a CUDA device: addresses that are reserved at
// once and mapped to memory in granules. The driver's functions are found at run time, as its
// library is not linked.

#include <memory>

#include "kernels/cuda/host/state.h"
#include "kernels/ops/elastic_memory.h"

namespace hearth::kernels {

struct DriverMemory;

/// A table's state with elastic memory.
struct ElasticState : CudaState {
  ElasticState();
  ~ElasticState();

  std::unique_ptr<DriverMemory> driver;
  ElasticMemory elastic;  ///< what OpTable::elastic points to
};

/// Prepares `state->elastic` for the current device. False if it or its driver has no such memory.
bool open_elastic(ElasticState* state);

}  // namespace hearth::kernels
