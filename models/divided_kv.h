#pragma once
// KV blocks of a model in stages whose memories differ: each stage has, of every block, the part
// with its own layers. The parts of a block, one after the other, are the block as one memory has
// it. Of a model in shares, each part has its heads of all layers.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/result.h"
#include "kernels/ops.h"
#include "models/model.h"

namespace hearth::models {

class DividedKv {
 public:
  /// `tables` and `layers` of each stage; the tables outlive this. kOutOfMemory names the stage.
  static Result<DividedKv> reserve(std::span<const kernels::OpTable* const> tables,
                                   std::span<const StageInfo> layers, const ModelInfo& info,
                                   std::span<const PoolSize> sizes);

  /// What a stage's steps use; one per layer group.
  std::span<const KvPool> pools(size_t stage) const { return stages_[stage].pools; }

  // No step may be in progress.
  void read(int32_t group, int32_t block, std::byte* out) const;
  void write(int32_t group, int32_t block, const std::byte* from);
  void copy(int32_t group, std::span<const int32_t> src, std::span<const int32_t> dst);

 private:
  struct OfStage {
    const kernels::OpTable* ops = nullptr;
    std::vector<kernels::DeviceBuffer> memory;  ///< per group
    std::vector<KvPool> pools;
  };
  std::vector<OfStage> stages_;
};

}  // namespace hearth::models
