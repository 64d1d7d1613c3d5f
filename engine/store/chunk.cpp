#include "engine/store/chunk.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace hearth::engine {
namespace {

constexpr int64_t kChunkBytes = 1 << 20;

}  // namespace

int32_t KvLayout::chunk_blocks() const {
  const int64_t bytes = std::accumulate(block_bytes.begin(), block_bytes.end(), int64_t{0});
  return static_cast<int32_t>(
      std::clamp<int64_t>(kChunkBytes / std::max<int64_t>(bytes, 1), 1, kMaxChunkBlocks));
}

Hash128 KvLayout::hash() const {
  return scope_hash(fmt::format("{}\n{}\n{}\n{}", identity, block_size, fmt::join(block_bytes, ","),
                                chunk_blocks()));
}

uint64_t ChunkShape::data_bytes(const KvLayout& layout) const {
  uint64_t bytes = 0;
  for (size_t group = 0; group < present.size(); ++group) {
    bytes += static_cast<uint64_t>(std::popcount(present[group])) *
             static_cast<uint64_t>(layout.block_bytes[group]);
  }
  return bytes;
}

}  // namespace hearth::engine
