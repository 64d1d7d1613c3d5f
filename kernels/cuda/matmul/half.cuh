#pragma once

#include <optional>

#include "kernels/cuda/matmul/plain.cuh"

namespace hearth::kernels {

/// Products of f16 and bf16 weights; `slices` slices of `width` rows, 8 or 32.
void run_half(cudaStream_t stream, DType dtype, const PlainMatmul& params, int64_t slices,
              int width);
/// From this number of rows on, x is rounded by a launch of its own. With fewer, the launch may
/// cost more than it saves; this was not measured.
inline constexpr int kRoundedRows = 16;
/// How the table's scratch holds rounded rows of x.
struct RoundedForm {
  DType dtype;
  bool in_tiles;  ///< in wgmma's order
  bool operator==(const RoundedForm&) const = default;
};
/// The same for kRoundedRows and more rows, but not for experts. x is first rounded into the
/// table's scratch, unless `rounded` shows that the scratch holds these rows in the needed form;
/// then `rounded` is set to what the scratch holds.
void run_half_rounded(CudaState& state, DType dtype, const PlainMatmul& params, int64_t rows,
                      std::optional<RoundedForm>* rounded);

}  // namespace hearth::kernels
