#pragma once
// Sums of kernels that compute one part of the inputs after the other: what earlier parts summed up
// waits in shared memory, which leaves registers for the part under way.

#include "kernels/cuda/matmul/rows.cuh"

namespace hearth::kernels {

/// A thread's sums in `totals` are [tile * kGroups + group][thread].
template <int kTiles, int kGroups, int kThreads>
struct TileTotals {
  float4 totals[kTiles * kGroups][kThreads];

  /// Adds a part's sums to the earlier ones and clears them.
  __device__ void add_part(bool first, float (&acc)[kTiles][kGroups][4]) {
#pragma unroll
    for (int i = 0; i < kTiles * kGroups; ++i) {
      float(&part)[4] = acc[i / kGroups][i % kGroups];
      totals[i][thread_x()] = with_earlier(i, first, part);
      part[0] = part[1] = part[2] = part[3] = 0;
    }
  }
  /// Adds the last part's and stores the sums of 16 outputs from each group's first on.
  template <typename Params>
  __device__ void store(const Params& p, const RowSlice& slice, int first_group, bool first,
                        const float (&acc)[kTiles][kGroups][4]) const {
    const int lane = thread_x() % kWarp;
#pragma unroll
    for (int i = 0; i < kTiles * kGroups; ++i) {
      const float4 all = with_earlier(i, first, acc[i / kGroups][i % kGroups]);
      const float sums[4] = {all.x, all.y, all.z, all.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int n = 8 * (i / kGroups) + 2 * (lane % 4) + j % 2;
        const int output = (first_group + i % kGroups) * kGroupOutputs + lane / 4 + j / 2 * 8;
        if (n < slice.num_rows && output < p.outputs) {
          store_output(p, p.rows.first_row + slice.first + n, output, sums[j]);
        }
      }
    }
  }

 private:
  __device__ float4 with_earlier(int i, bool first, const float (&part)[4]) const {
    const float4 before = first ? float4{0, 0, 0, 0} : totals[i][thread_x()];
    return {before.x + part[0], before.y + part[1], before.z + part[2], before.w + part[3]};
  }
};

}  // namespace hearth::kernels
