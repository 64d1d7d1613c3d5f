#pragma once
// The rotation of heads by the step's table of angles, as the ops do it that rotate.

#include "kernels/cuda/device.cuh"

namespace hearth::kernels {

struct Rotation {
  RowsView cos_sin;  ///< data null: nothing is rotated
  int32_t num_pairs;
  int32_t first;  ///< of a head's values that are rotated
  bool neighbours;
};
inline Rotation rotation_of(const RopeArgs& args) {
  return {rows_view(args.cos_sin), static_cast<int32_t>(args.cos_sin.cols / 2), args.first,
          args.pairs == RopePairs::kNeighbours};
}

/// Two values that are rotated together, and what they become.
struct RotatedPair {
  float first;
  float second;
};
__device__ inline RotatedPair rotate_pair(RotatedPair from, const float* angles, int pair) {
  const float c = angles[2 * pair];
  const float s = angles[2 * pair + 1];
  return {from.first * c - from.second * s, from.second * c + from.first * s};
}

/// Rotates pairs begin, begin + step, ... of the heads of a row.
__device__ inline void rotate_pairs(const Rotation& r, int64_t row, float* heads, int num_heads,
                                    int head_dim, int begin, int step) {
  const float* angles = r.cos_sin.data + row * r.cos_sin.stride;
  for (int n = begin; n < num_heads * r.num_pairs; n += step) {
    const int i = n % r.num_pairs;
    float* head = heads + int64_t{n / r.num_pairs} * head_dim + r.first;
    float& a = head[r.neighbours ? 2 * i : i];
    float& b = head[r.neighbours ? 2 * i + 1 : i + r.num_pairs];
    const RotatedPair to = rotate_pair({a, b}, angles, i);
    a = to.first;
    b = to.second;
  }
}

/// Value d of a head of the row as rotate_pairs leaves it.
__device__ inline float rotated_value(const Rotation& r, int64_t row, const float* head, int d) {
  const int at = d - r.first;
  if (r.cos_sin.data == nullptr || at < 0 || at >= 2 * r.num_pairs) return head[d];
  const int i = r.neighbours ? at / 2 : at % r.num_pairs;
  const bool second = r.neighbours ? at % 2 == 1 : at >= r.num_pairs;
  const float a = head[r.first + (r.neighbours ? 2 * i : i)];
  const float b = head[r.first + (r.neighbours ? 2 * i + 1 : i + r.num_pairs)];
  const RotatedPair to = rotate_pair({a, b}, r.cos_sin.data + row * r.cos_sin.stride, i);
  return second ? to.second : to.first;
}

}  // namespace hearth::kernels
