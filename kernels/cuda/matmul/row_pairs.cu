// One row times a weight whose segments have two types, in one launch: blocks of the first segment,
// then those of the second, each with the bits of matmul_super_row_kernel. For the pairs that files
// of mixed types have in q, k and v.

#include <algorithm>

#include "kernels/cuda/layout.cuh"
#include "kernels/cuda/matmul/row_pairs.cuh"
#include "kernels/cuda/matmul/super_row.cuh"

namespace hearth::kernels {
namespace {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
constexpr int kMostRowBlocks = 2;  // the compiler takes a few registers more there
#else
constexpr int kMostRowBlocks = 3;
#endif

template <DType kFirst, DType kSecond>
__global__ void __launch_bounds__(kParts* kWarp, std::min({kRowBlocks<kFirst>, kRowBlocks<kSecond>,
                                                           kMostRowBlocks}))
    matmul_super_pair_kernel(QuantMatmul first, QuantMatmul second) {
  const int groups = (first.outputs + kGroupOutputs - 1) / kGroupOutputs;
  if (block_y() < groups) {
    super_row<kFirst, false>(first, block_y());
  } else {
    super_row<kSecond, false>(second, block_y() - groups);
  }
}

template <DType kFirst, DType kSecond>
void launch_pair(cudaStream_t stream, const QuantMatmul& first, const QuantMatmul& second) {
  const int64_t groups =
      ceil_div(first.outputs, kGroupOutputs) + ceil_div(second.outputs, kGroupOutputs);
  HEARTH_LAUNCH(stream, (matmul_super_pair_kernel<kFirst, kSecond>), grid2(1, groups),
                kParts * kWarp, 0, first, second);
}

struct Pair {
  DType first, second;
  void (*launch)(cudaStream_t, const QuantMatmul&, const QuantMatmul&);
};
template <DType kFirst, DType kSecond>
constexpr Pair kPair = {kFirst, kSecond, launch_pair<kFirst, kSecond>};

constexpr Pair kPairs[] = {kPair<DType::kQ4_K, DType::kQ6_K>, kPair<DType::kQ5_K, DType::kQ6_K>,
                           kPair<DType::kQ4_K, DType::kQ5_K>, kPair<DType::kQ3_K, DType::kQ5_K>,
                           kPair<DType::kQ3_K, DType::kQ4_K>, kPair<DType::kQ2_K, DType::kQ4_K>,
                           kPair<DType::kQ2_K, DType::kQ3_K>};

}  // namespace

bool run_row_pair(cudaStream_t stream, DType first_type, const QuantMatmul& first,
                  DType second_type, const QuantMatmul& second) {
  for (const Pair& pair : kPairs) {
    if (pair.first == first_type && pair.second == second_type) {
      pair.launch(stream, first, second);
      return true;
    }
    if (pair.first == second_type && pair.second == first_type) {
      pair.launch(stream, second, first);
      return true;
    }
  }
  return false;
}

}  // namespace hearth::kernels
