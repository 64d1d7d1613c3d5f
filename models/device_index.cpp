#include "models/device_index.h"

#include <cstring>
#include <utility>

#include "kernels/base/check.h"

namespace hearth::models {

using kernels::BatchIndex;
using kernels::GroupIndex;

uint64_t DeviceIndex::bytes_for(int32_t rows, std::span<const PoolSize> sizes) {
  uint64_t numbers = 3 + 1 + 6 * uint64_t(rows);  // PieceIndex's arrays; sequences have rows
  uint64_t states = 0;
  for (const PoolSize& size : sizes) {
    if (size.max_blocks == 0) states = rows * sizeof(kernels::StateStep);
    numbers += uint64_t(rows) * (1 + size.max_blocks);
  }
  numbers += kMostStores * (3 + sizes.size() * uint64_t(rows));
  return numbers * sizeof(int32_t) + states;
}

Result<DeviceIndex> DeviceIndex::reserve(const kernels::OpTable& ops, uint64_t bytes) {
  DeviceIndex index;
  index.ops_ = &ops;
  HEARTH_ASSIGN_OR_RETURN(index.memory_,
                          kernels::DeviceBuffer::allocate(ops, bytes, "index of a stage"));
  index.staged_ = kernels::HostBuffer(ops, bytes);
  return index;
}

template <typename T>
const T* DeviceIndex::put(const T* from, int64_t count) {
  static_assert(sizeof(T) % sizeof(int32_t) == 0 && alignof(T) <= sizeof(int32_t));
  if (from == nullptr) return nullptr;
  const size_t bytes = count * sizeof(T);
  HEARTH_CHECK(used_ + bytes <= memory_.size(), "{} bytes of {}", used_ + bytes, memory_.size());
  std::memcpy(staged_.as<std::byte>() + used_, from, bytes);
  return reinterpret_cast<const T*>(memory_.data() + std::exchange(used_, used_ + bytes));
}

BatchIndex DeviceIndex::put(const BatchIndex& from) {
  BatchIndex to = from;
  to.counts = put(from.counts, 3);
  to.token_ids = put(from.token_ids, from.num_tokens);
  to.positions = put(from.positions, from.num_tokens);
  to.seq_idx = put(from.seq_idx, from.num_tokens);
  to.query_start = put(from.query_start, from.num_seqs + 1);
  to.context_len = put(from.context_len, from.num_seqs);
  to.output_rows = put(from.output_rows, from.num_outputs);
  to.states = put(from.states, from.num_seqs);
  std::vector<GroupIndex>& groups = of_groups_[indexes_.size()];
  groups.clear();
  for (const GroupIndex& group : from.groups) {
    groups.push_back({put(group.block_table, int64_t{from.num_seqs} * group.max_blocks),
                      group.max_blocks, put(group.slot_mapping, from.num_tokens)});
  }
  to.groups = groups;
  return to;
}

void DeviceIndex::upload(StepArgs* args) {
  used_ = 0;
  indexes_.clear();
  of_groups_.resize(1 + kMostStores);
  HEARTH_CHECK(args->also_stored.size() <= kMostStores, "{} stores", args->also_stored.size());
  indexes_.push_back(put(*args->batch));
  for (const BatchIndex& stored : args->also_stored) {
    BatchIndex only;  // no op reads more of it
    only.num_tokens = stored.num_tokens;
    only.counts = stored.counts;
    std::vector<GroupIndex> groups;
    for (const GroupIndex& group : stored.groups)
      groups.push_back({nullptr, 0, group.slot_mapping});
    only.groups = groups;
    indexes_.push_back(put(only));
  }
  args->batch = &indexes_.front();
  args->also_stored = std::span(indexes_).subspan(1);
  ops_->copy_to_device(ops_->state.get(), memory_.data(), staged_.as<std::byte>(), used_);
}

}  // namespace hearth::models
