#include "models/divided_kv.h"

#include <fmt/core.h>

#include <utility>

namespace hearth::models {

using kernels::DeviceBuffer;
using kernels::OpTable;

Result<DividedKv> DividedKv::reserve(std::span<const OpTable* const> tables,
                                     std::span<const StageInfo> layers, const ModelInfo& info,
                                     std::span<const PoolSize> sizes) {
  DividedKv out;
  std::vector<int64_t> first_byte(sizes.size(), 0);
  for (size_t stage = 0; stage < tables.size(); ++stage) {
    OfStage& own = out.stages_.emplace_back();
    own.ops = tables[stage];
    for (size_t group = 0; group < sizes.size(); ++group) {
      KvPool pool = sizes[group].pool;
      pool.first_byte = first_byte[group];
      pool.block_bytes = layers[stage].block_bytes(info.groups[group], group, pool.block_bytes);
      first_byte[group] += pool.block_bytes;
      HEARTH_ASSIGN_OR_RETURN(
          DeviceBuffer memory,
          DeviceBuffer::allocate(
              *own.ops, sizes[group].num_blocks * pool.block_bytes,
              fmt::format("stage {}: KV blocks of layer group {}", layers[stage].device, group)));
      pool.base = memory.data();
      own.memory.push_back(std::move(memory));
      own.pools.push_back(pool);
    }
  }
  return out;
}

void DividedKv::read(int32_t group, int32_t block, std::byte* out) const {
  for (const OfStage& stage : stages_) {
    const KvPool& pool = stage.pools[group];
    stage.ops->copy_to_host(stage.ops->state.get(), out + pool.first_byte,
                            pool.base + block * pool.block_bytes, pool.block_bytes);
  }
}

void DividedKv::write(int32_t group, int32_t block, const std::byte* from) {
  for (const OfStage& stage : stages_) {
    const KvPool& pool = stage.pools[group];
    stage.ops->copy_to_device(stage.ops->state.get(), pool.base + block * pool.block_bytes,
                              from + pool.first_byte, pool.block_bytes);
  }
}

void DividedKv::copy(int32_t group, std::span<const int32_t> src, std::span<const int32_t> dst) {
  for (const OfStage& stage : stages_) {
    const KvPool& pool = stage.pools[group];
    if (pool.block_bytes == 0) continue;
    stage.ops->copy_blocks(stage.ops->state.get(), {pool.base, pool.block_bytes, src, dst});
  }
}

}  // namespace hearth::models
