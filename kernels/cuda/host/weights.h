#pragma once
// Weights in the CUDA table's form (layout: kernels/cuda/layout.cuh).

#include <vector>

#include "kernels/cuda/host/state.h"
#include "kernels/ops.h"

namespace hearth::kernels {

/// Outputs of one type, of each expert. Consecutive tensors of one type share a segment and its
/// panels (f32, f16, bf16: kernels/cuda/layout.cuh) or groups (quantized types:
/// kernels/cuda/matmul/quant_layout.cuh).
struct WeightSegment {
  DType dtype = DType::kF32;
  int64_t first_row = 0;
  int64_t rows = 0;
  size_t expert_bytes = 0;  ///< experts are stored one after the other
  CudaMemory data;
  size_t bytes = 0;
};

class CudaWeight : public Weight {
 public:
  std::vector<WeightSegment> segments;  ///< of matrices
  CudaMemory vector_data;               ///< role kVector
};

}  // namespace hearth::kernels
