#pragma once
// A model of one layer and importance matrices that fit it.

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "models/gguf/gguf_writer.h"

namespace hearth::models {

inline constexpr uint64_t kLayerCols = 64, kLayerRows = 4, kLayerExperts = 3;

inline std::vector<float> random_floats(size_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<float> values(count);
  for (float& x : values) x = (static_cast<float>(engine() >> 8) * 0x1p-23f - 1) * 0.5f;
  return values;
}

/// A matrix, and one for each of three experts.
inline GgufWriter small_layer() {
  GgufWriter w;
  w.set_string("general.architecture", "none");
  w.set_u32("none.block_count", 1);
  const std::vector<uint64_t> dims = {kLayerCols, kLayerRows};
  const std::vector<uint64_t> expert_dims = {kLayerCols, kLayerRows, kLayerExperts};
  w.add_floats("blk.0.attn_q.weight", dims, kernels::DType::kF32,
               random_floats(kLayerCols * kLayerRows, 1));
  w.add_floats("blk.0.ffn_up_exps.weight", expert_dims, kernels::DType::kF32,
               random_floats(kLayerCols * kLayerRows * kLayerExperts, 2));
  return w;
}

inline void add_constant(GgufWriter* w, const std::string& name, std::vector<uint64_t> dims,
                         float value, kernels::DType type = kernels::DType::kF32) {
  uint64_t count = 1;
  for (const uint64_t dim : dims) count *= dim;
  w->add_floats(name, dims, type, std::vector<float>(count, value));
}

inline GgufWriter importance_header() {
  GgufWriter w;
  w.set_string("general.type", "imatrix");
  return w;
}

/// One that fits small_layer().
inline GgufWriter layer_importance() {
  GgufWriter w = importance_header();
  add_constant(&w, "blk.0.attn_q.weight.in_sum2", {kLayerCols, 1}, 8);
  add_constant(&w, "blk.0.attn_q.weight.counts", {1, 1}, 4);
  add_constant(&w, "blk.0.ffn_up_exps.weight.in_sum2", {kLayerCols, kLayerExperts}, 6);
  add_constant(&w, "blk.0.ffn_up_exps.weight.counts", {1, kLayerExperts}, 3);
  return w;
}

}  // namespace hearth::models
