#pragma once
// The gated activations, as the ops compute them that do.

#include "kernels/cuda/device.cuh"

namespace hearth::kernels {

__device__ inline float gated(float x, float up, Activation activation) {
  if (activation == Activation::kSilu) return x / (1.0f + expf(-x)) * up;
  if (activation == Activation::kClampedSwish) {
    const float gate = fminf(x, 7.0f);
    return gate / (1.0f + expf(-1.702f * gate)) * (fminf(fmaxf(up, -7.0f), 7.0f) + 1.0f);
  }
  const float u = 0.79788456080286536f * (x + 0.044715f * x * x * x);  // sqrt(2 / pi)
  return 0.5f * x * (1.0f + tanhf(u)) * up;
}

}  // namespace hearth::kernels
