#pragma once
// A block store in a map, with faults on request. Its content survives it, as a file would.

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "engine/store/block_store.h"

namespace hearth::tests {

struct StoredChunk {
  engine::Hash128 root;
  std::vector<int32_t> tokens;  ///< from the root to the chunk's end
  engine::ChunkShape shape;
  std::vector<std::byte> data;
};

struct MemoryChunks {
  std::map<int64_t, StoredChunk> rows;
  int64_t next_row = 1;
  struct Pin {
    std::string owner;
    int32_t num_blocks = 0;
    int64_t seconds = 0;
  };
  std::vector<Pin> pins;  ///< in the order of requests
};

struct MemoryStoreFaults {
  std::function<bool()> find_fails, load_fails, save_fails, evicts;
};

class MemoryStore final : public engine::BlockStore {
 public:
  MemoryStore(engine::KvLayout layout, std::shared_ptr<MemoryChunks> chunks,
              MemoryStoreFaults faults = {});

  engine::NamedChain name(engine::Chain chain) const override;
  Result<std::vector<engine::FoundChunk>> find(const engine::NamedChain& chain, int32_t first_block,
                                               int32_t max_blocks) override;
  Result<engine::ChunkData> load(const engine::NamedChain& chain,
                                 engine::FoundChunk* found) override;
  Result<void> save(std::span<const engine::ChunkToSave> chunks) override;
  Result<bool> touch(const engine::NamedChain& chain, int32_t index, int32_t num_blocks,
                     engine::ChunkKind kind) override;
  Result<int32_t> pin(const engine::NamedChain& chain, int32_t num_blocks,
                      int64_t seconds) override;
  void tick() override {}
  engine::StoreStats stats() const override { return stats_; }

 private:
  const engine::KvLayout layout_;
  const std::shared_ptr<MemoryChunks> chunks_;
  const MemoryStoreFaults faults_;
  engine::StoreStats stats_;
};

}  // namespace hearth::tests
