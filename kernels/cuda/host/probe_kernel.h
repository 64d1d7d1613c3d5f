#pragma once

#include <cuda_runtime.h>

namespace hearth::kernels {

/// Success if this build has code that the current device can run.
cudaError_t cuda_code_for_device();

}  // namespace hearth::kernels
