#include "memory_store.h"

#include <algorithm>

namespace hearth::tests {

using namespace engine;

namespace {

bool happens(const std::function<bool()>& fault) { return fault && fault(); }
Error fault_error() { return {ErrorCode::kIo, "a fault of the test", ""}; }

}  // namespace

MemoryStore::MemoryStore(KvLayout layout, std::shared_ptr<MemoryChunks> chunks,
                         MemoryStoreFaults faults)
    : layout_(std::move(layout)), chunks_(std::move(chunks)), faults_(std::move(faults)) {
  stats_.state = StoreState::kWriting;
}

NamedChain MemoryStore::name(Chain chain) const {
  return name_chain(std::move(chain), layout_.block_size);
}

Result<std::vector<FoundChunk>> MemoryStore::find(const NamedChain& chain, int32_t first_block,
                                                  int32_t max_blocks) {
  if (happens(faults_.find_fails)) return fault_error();
  if (happens(faults_.evicts) && !chunks_->rows.empty()) {
    chunks_->rows.erase(chunks_->rows.begin());
  }
  std::vector<FoundChunk> out;
  const int32_t chunk_blocks = layout_.chunk_blocks();
  const auto block_size = static_cast<size_t>(layout_.block_size);
  for (int32_t index = first_block / chunk_blocks; index * chunk_blocks < max_blocks; ++index) {
    int32_t longest = 0;
    for (const auto& [row, chunk] : chunks_->rows) {
      if (chunk.root != chain.chain.root || chunk.shape.index != index) continue;
      const size_t in_front = static_cast<size_t>(index * chunk_blocks) * block_size;
      const size_t limit =
          std::min(chunk.tokens.size(), static_cast<size_t>(max_blocks) * block_size);
      size_t common = 0;
      while (common < limit && common < chain.chain.tokens.size() &&
             chunk.tokens[common] == chain.chain.tokens[common]) {
        ++common;
      }
      if (common < in_front + block_size) continue;
      FoundChunk found;
      found.row = row;
      found.shape = chunk.shape;
      found.shape.num_blocks = static_cast<int32_t>((common - in_front) / block_size);
      for (uint64_t& mask : found.shape.present) mask &= low_bits(found.shape.num_blocks);
      found.bytes = chunk.data.size();
      if (chunk.shape.is_state(layout_)) {
        if (found.shape.num_blocks < chunk.shape.num_blocks) continue;
      } else {
        longest = std::max(longest, found.shape.num_blocks);
      }
      out.push_back(found);
    }
    if (longest < chunk_blocks && layout_.num_groups() > (layout_.state_group < 0 ? 0 : 1)) break;
  }
  std::ranges::stable_sort(out, {}, [this](const FoundChunk& chunk) {
    return std::pair(chunk.shape.index, chunk.shape.is_state(layout_));
  });
  return out;
}

Result<ChunkData> MemoryStore::load(const NamedChain&, FoundChunk* found) {
  if (happens(faults_.load_fails)) return fault_error();
  const auto at = chunks_->rows.find(found->row);
  if (at == chunks_->rows.end()) return Error{ErrorCode::kNotFound, "evicted", ""};
  ChunkData data = ChunkData::of_size(at->second.data.size());
  std::ranges::copy(at->second.data, data.bytes.get());
  found->shape = at->second.shape;
  ++stats_.chunks_loaded;
  return data;
}

Result<void> MemoryStore::save(std::span<const ChunkToSave> chunks) {
  if (happens(faults_.save_fails)) {
    ++stats_.epoch;
    return fault_error();
  }
  for (const ChunkToSave& chunk : chunks) {
    const int32_t blocks = chunk.shape->index * layout_.chunk_blocks() + chunk.shape->num_blocks;
    const auto tokens = std::span(chunk.chain->chain.tokens)
                            .first(static_cast<size_t>(blocks * layout_.block_size));
    chunks_->rows[chunks_->next_row++] = {chunk.chain->chain.root,
                                          {tokens.begin(), tokens.end()},
                                          *chunk.shape,
                                          {chunk.data.begin(), chunk.data.end()}};
    ++stats_.chunks_saved;
  }
  return {};
}

Result<int32_t> MemoryStore::pin(const NamedChain& chain, int32_t num_blocks, int64_t seconds) {
  chunks_->pins.push_back({chain.chain.owner, num_blocks, seconds});
  return num_blocks;
}

Result<bool> MemoryStore::touch(const NamedChain&, int32_t, int32_t, ChunkKind) { return true; }

}  // namespace hearth::tests
