#pragma once
// The weights of a warp that computes two groups of outputs, chunk after chunk: a plane is replaced
// as soon as it was used, so that loads run ahead of products without registers for two chunks.

#include "kernels/cuda/matmul/quant_terms.cuh"

namespace hearth::kernels {

inline constexpr int kShareGroups = 2;
inline constexpr int kShareOutputs = kShareGroups * kGroupOutputs;
static_assert(kShareOutputs == kWarp);  // a lane prepares the scales of one

/// A lane's planes of one group. A plane of bytes or nibbles is replaced by the one two pairs of
/// blocks later as soon as it was used, the others by the next that have their place.
template <DType kType>
struct RollingShare {
  static constexpr QuantForm kForm = quant_form(kType);
  static constexpr int kPerPair = kForm.bytes ? 2 : kForm.nibbles ? 1 : 0;
  uint4 first[kPerPair == 0 ? 1 : 2 * kPerPair];
  static constexpr int kTwos = kForm.nibbles ? 1 : 2;  ///< all that registers are left for
  uint4 two[kTwos];
  uint4 one;

  __device__ void load_pair(const std::byte* planes, int pair) {
#pragma unroll
    for (int i = 0; i < kPerPair; ++i) {
      const int plane = kPerPair * (pair % (kChunkBlocks / 2)) + i;
      first[kPerPair * (pair % 2) + i] = load_as<uint4>(planes + plane * kPlaneBytes);
    }
  }
  __device__ void load_two(const std::byte* planes, int i) {
    if constexpr (kForm.twos) {
      two[i % kTwos] = load_as<uint4>(planes + (kForm.first_two() + i) * kPlaneBytes);
    }
  }
  __device__ void load_one(const std::byte* planes) {
    if constexpr (kForm.ones) one = load_as<uint4>(planes + kForm.first_one() * kPlaneBytes);
  }
  __device__ void load_first(const std::byte* planes) {
    load_pair(planes, 0);
    load_pair(planes, 1);
    load_two(planes, 0);
    if constexpr (kTwos == 2) load_two(planes, 1);
    load_one(planes);
  }
  /// Both blocks of `pair` were unpacked. `more`: there is a next chunk.
  __device__ void replace_bits(const std::byte* planes, int pair, bool more) {
    const std::byte* next = planes + kForm.chunk_bytes();
    if constexpr (kTwos == 1) {
      if (pair == 1) load_two(planes, 1);
      if (pair == 3 && more) load_two(next, 0);
    } else {
      if (pair % 2 == 1 && more) load_two(next, pair / 2);
    }
    if (pair == 3 && more) load_one(next);
  }
  /// Both blocks of `pair` were multiplied.
  __device__ void replace_pair(const std::byte* planes, int pair, bool more) {
    if (pair < 2) {
      load_pair(planes, pair + 2);
    } else if (more) {
      load_pair(planes + kForm.chunk_bytes(), pair + 2);
    }
  }
  __device__ void codes(int b, uint32_t (&a)[4]) const {
    // As unpack_codes() finds them; the rest of the array does not exist in the end.
    uint4 plane[kForm.num_planes()] = {};
    if constexpr (kForm.bytes) {
      plane[b] = first[b % 4];
    } else {
      if constexpr (kForm.nibbles) plane[b / 2] = first[b / 2 % 2];
      if constexpr (kForm.twos) plane[kForm.first_two() + b / 4] = two[b / 4 % kTwos];
      if constexpr (kForm.ones) plane[kForm.first_one()] = one;
    }
    unpack_codes<kType>(plane, b, a);
  }
};

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
