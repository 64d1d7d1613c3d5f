#include "engine/store/chunk.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/base/numbers.h"

namespace hearth::engine {
namespace {

constexpr int64_t kChunkBytes = 1 << 20;

}  // namespace

int32_t KvLayout::chunk_blocks() const {
  const int64_t bytes = std::accumulate(block_bytes.begin(), block_bytes.end(), int64_t{0}) -
                        (state_group < 0 ? 0 : block_bytes[state_group]);
  return narrow<int32_t>(
      std::clamp<int64_t>(kChunkBytes / std::max<int64_t>(bytes, 1), 1, kMaxChunkBlocks));
}

Hash128 KvLayout::hash() const {
  return scope_hash(fmt::format("{}\n{}\n{}\n{}{}", identity, block_size,
                                fmt::join(block_bytes, ","), chunk_blocks(),
                                state_group < 0 ? "" : fmt::format("\n{}", state_group)));
}

uint64_t ChunkShape::data_bytes(const KvLayout& layout) const {
  uint64_t bytes = 0;
  for (size_t group = 0; group < present.size(); ++group) {
    bytes += std::popcount(present[group]) * layout.block_bytes[group];
  }
  return bytes;
}

NamedChain name_chain(Chain chain, int32_t block_size) {
  NamedChain out;
  const size_t size = block_size;
  const size_t num_blocks = chain.tokens.size() / size;
  chain.tokens.resize(num_blocks * size);
  out.names.reserve(num_blocks + 1);
  out.names.push_back(chain.root);
  for (size_t i = 0; i < num_blocks; ++i) {
    out.names.push_back(
        chain_hash(out.names.back(), std::span(chain.tokens).subspan(i * size, size)));
  }
  out.chain = std::move(chain);
  return out;
}

}  // namespace hearth::engine
