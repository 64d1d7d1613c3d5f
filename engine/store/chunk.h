#pragma once
// The unit of a store: chains of blocks are divided into chunks at absolute multiples of the chunk
// length. Plain data, shared by the engine, the store's thread and the database.
//
// The bytes of a chunk: block by block, in each block group by group, those that are present.
//
// A state of recurrent layers can outweigh thousands of blocks, so it is a chunk of its own: of one
// group, present at its last block alone.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/kv/chain_hash.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {

/// The shape of an engine's KV. Chunks of another shape are never read.
struct KvLayout {
  std::string model;     ///< its name, for people
  std::string identity;  ///< everything besides tokens and salt that changes KV, as text
  int32_t block_size = 0;
  std::vector<int64_t> block_bytes;  ///< per layer group; of the recurrent one: of a state
  int32_t state_group = -1;          ///< the recurrent group, or -1

  /// Blocks of a full chunk: about a MiB without states, one block at least.
  int32_t chunk_blocks() const;
  int32_t num_groups() const { return size32(block_bytes); }
  /// Of the identity and the numbers here.
  Hash128 hash() const;
};

/// Most blocks in a chunk: the bits of a mask.
inline constexpr int32_t kMaxChunkBlocks = 64;

/// What a chunk holds: blocks of KV, or a state.
enum class ChunkKind { kKv, kState };

struct ChunkShape {
  int32_t index = 0;  ///< the chunk begins at block index * chunk_blocks
  int32_t num_blocks = 0;
  /// Per group, bit i: block i of the chunk is present. Full groups have all of them, sliding ones
  /// those that were in the window.
  std::vector<uint64_t> present;

  bool has(int32_t group, int32_t block) const { return (present[group] >> block & 1u) != 0; }
  /// Whether it is a state.
  bool is_state(const KvLayout& layout) const {
    return layout.state_group >= 0 && present[layout.state_group] != 0;
  }
  ChunkKind kind(const KvLayout& layout) const {
    return is_state(layout) ? ChunkKind::kState : ChunkKind::kKv;
  }
  uint64_t data_bytes(const KvLayout& layout) const;
};

/// Owner of a chunk's memory, if it is not the heap.
class ChunkSource {
 public:
  virtual ~ChunkSource() = default;
  virtual void give_back(std::byte* bytes) = 0;  ///< on any thread
};
struct ChunkFree {
  std::shared_ptr<ChunkSource> source;  ///< null: the heap
  void operator()(std::byte* bytes) const {
    if (source != nullptr) return source->give_back(bytes);
    delete[] bytes;
  }
};

/// KV bytes of one chunk. Not initialized when made.
struct ChunkData {
  std::unique_ptr<std::byte[], ChunkFree> bytes;
  size_t size = 0;
  size_t capacity = 0;  ///< the buffer may be used again, for up to this many bytes

  static ChunkData of_size(size_t size) { return {{new std::byte[size], ChunkFree{}}, size, size}; }
  std::span<std::byte> span() const { return {bytes.get(), size}; }
};

/// The tokens of a chain from its root on, and their owner.
struct Chain {
  std::string owner;
  Hash128 root;  ///< scope_hash
  std::vector<int32_t> tokens;
  std::string published;  ///< name of its scope in events; "": it is not published
};

/// A chain with the names of its blocks, computed once.
struct NamedChain {
  Chain chain;
  std::vector<Hash128> names;     ///< [i]: after i blocks; [0] is the root
  std::vector<Hash128> prefixes;  ///< per chunk, see StoreKey::prefixes
  int32_t num_blocks() const { return size32(names) - 1; }
};
/// Names the chain's full blocks and drops the tokens after them. Computes no prefixes.
NamedChain name_chain(Chain chain, int32_t block_size);

/// A stored chunk that continues a chain.
struct FoundChunk {
  int64_t row = 0;
  /// Only the blocks whose tokens are the chain's: fewer than stored if the tokens differ in the
  /// chunk.
  ChunkShape shape;
  uint64_t bytes = 0;  ///< to be read for it
};

/// The lowest `count` bits.
inline uint64_t low_bits(int32_t count) {
  return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
}

}  // namespace hearth::engine
