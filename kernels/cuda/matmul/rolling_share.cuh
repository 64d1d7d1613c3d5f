#pragma once
// The weights of a lane, chunk after chunk: a plane is replaced as soon as it was used, so that
// loads run ahead of products without registers for two chunks.

#include "kernels/cuda/matmul/unpack.cuh"

namespace hearth::kernels {

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

}  // namespace hearth::kernels
