#pragma once
// The weights of a warp that computes two groups of outputs, chunk after chunk.

#include "kernels/cuda/matmul/quant_terms.cuh"
#include "kernels/cuda/matmul/rolling_share.cuh"

namespace hearth::kernels {

inline constexpr int kShareGroups = 2;
inline constexpr int kShareOutputs = kShareGroups * kGroupOutputs;
static_assert(kShareOutputs == kWarp);  // a lane prepares the scales of one

/// A lane's share of the warp's groups, and the scales of output `lane` of them.
template <DType kType>
class WarpShare {
 public:
  /// Chunk `chunk` of group `first` and its neighbour. Groups past the last one repeat it: they are
  /// computed and dropped.
  __device__ void begin(const QuantMatmul& p, int expert, int first, int chunk) {
    const int last = (p.outputs - 1) / kGroupOutputs;
    const int group_units = p.chunks * kChunkUnits;
    weights_ = p.weights;
    at_ = expert * static_cast<int>(p.expert_bytes / 16) +
          (first < last ? first : last) * group_units + chunk * kChunkUnits;
    group_units_ = first < last ? group_units : 0;
  }
  __device__ void next_chunk() { at_ += kChunkUnits; }

  __device__ void load_first(int lane) {
#pragma unroll
    for (int i = 0; i < kShareGroups; ++i) group_[i].load_first(planes(i, lane));
    load_stored(0, lane);
  }
  /// Prepares the scales of a pair of blocks. `more`: there is a next chunk.
  __device__ void store_scales(int pair, bool more, ScaleTerms<kType> (&to)[2][kShareOutputs],
                               int lane) {
    to[0][lane] = scale_terms<kType>(stored_, 2 * pair);
    to[1][lane] = scale_terms<kType>(stored_, 2 * pair + 1);
    if (pair == kChunkBlocks / 2 - 1 && more) load_stored(kForm.chunk_bytes(), lane);
  }
  /// Operands of block b of the pair.
  __device__ void take(int pair, int b, bool more,
                       const ScaleTerms<kType> (&scales)[2][kShareOutputs], int lane,
                       BlockOperand<kType> (&to)[kShareGroups]) {
#pragma unroll
    for (int i = 0; i < kShareGroups; ++i) {
      group_[i].codes(2 * pair + b, to[i].a);
      to[i].subtract_offset();
      to[i].load_scales(&scales[b][i * kGroupOutputs + lane / 4]);
      if (b == 1) group_[i].replace_bits(planes(i, lane), pair, more);
    }
  }
  /// Loads what comes in place of a pair that was multiplied.
  __device__ void run_ahead(int pair, bool more, int lane) {
#pragma unroll
    for (int i = 0; i < kShareGroups; ++i) group_[i].replace_pair(planes(i, lane), pair, more);
  }

 private:
  static constexpr QuantForm kForm = quant_form(kType);
  static constexpr int kChunkUnits = kForm.chunk_bytes() / 16;
  static_assert(kForm.chunk_bytes() % 16 == 0);

  __device__ const std::byte* planes(int group, int lane) const {
    return weights_ + int64_t{at_ + group * group_units_ + lane} * 16 + kForm.planes_at();
  }
  __device__ void load_stored(int ahead, int lane) {
    const int at = at_ + lane / kGroupOutputs * group_units_;
    stored_ = load_scales<kType>(weights_ + int64_t{at} * 16 + ahead, lane % kGroupOutputs);
  }

  const std::byte* weights_;
  // In units of 16 bytes, so that they take one register each: the first group's chunk, and how far
  // the second one's is from it.
  int at_;
  int group_units_;
  RollingShare<kType> group_[kShareGroups];
  StoredScales stored_;
};

}  // namespace hearth::kernels
