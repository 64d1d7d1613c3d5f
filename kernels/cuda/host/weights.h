#pragma once
// Weights as the CUDA table keeps them (layout: kernels/cuda/layout.cuh).

#include <vector>

#include "kernels/cuda/host/state.h"
#include "kernels/ops.h"

namespace hearth::kernels {

/// Outputs of one type, of each expert. Neighbouring tensors of one type share a segment and its
/// panels (f32, f16, bf16: kernels/cuda/layout.cuh) or groups (quantized types:
/// kernels/cuda/matmul/quant_layout.cuh).
struct WeightSegment {
  DType dtype = DType::kF32;
  int64_t first_row = 0;
  int64_t rows = 0;
  size_t expert_bytes = 0;  ///< expert after expert
  CudaMemory data;
  size_t bytes = 0;
};

class CudaWeight : public Weight {
 public:
  std::vector<WeightSegment> segments;  ///< of matrices
  CudaMemory vector_data;               ///< role kVector
};

}  // namespace hearth::kernels
