#pragma once
// A store in its own folder, chains to save in it, and a clock that the test sets.

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/store/sqlite_store.h"
#include "engine/store/stored_row.h"
#include "tests/temp_dir.h"

namespace hearth::tests {

/// Two groups, the second sliding; chunks of 8 blocks.
inline engine::KvLayout small_layout(const std::string& model = "small") {
  engine::KvLayout layout;
  layout.model = model;
  layout.identity = "identity of " + model;
  layout.block_size = 4;
  layout.block_bytes = {(1 << 17) - 64, 64};
  return layout;
}

struct StoreRig {
  explicit StoreRig(engine::KvLayout kv = small_layout()) : layout(std::move(kv)) { reopen(); }

  /// As a new process would open it.
  void reopen() {
    store.reset();
    engine::SqliteStoreConfig config;
    config.folder = folder.path();
    config.budget_bytes = budget_bytes;
    config.owner_budget_bytes = owner_budget_bytes;
    config.owner_pinned_bytes = owner_pinned_bytes;
    config.min_free_bytes = 0;
    config.now_ms = [this] { return now_ms; };
    config.vfs = vfs;
    store = std::make_unique<engine::SqliteStore>(std::move(config), layout);
    store->tick();
  }

  engine::Chain chain(int32_t num_tokens, uint32_t seed, const std::string& owner = "uid:1") const {
    engine::Chain out;
    out.owner = owner;
    out.root = engine::scope_hash(layout.identity + owner);
    std::mt19937 random(seed);
    for (int32_t i = 0; i < num_tokens; ++i) {
      out.tokens.push_back(static_cast<int32_t>(random() % 1000));
    }
    return out;
  }

  /// The expected KV of that block of that chain: a function of the tokens before it.
  static std::byte byte_of(const engine::NamedChain& chain, int32_t block, size_t group) {
    return static_cast<std::byte>(chain.names[static_cast<size_t>(block) + 1].low + group);
  }
  engine::ChunkData data_of(const engine::NamedChain& chain,
                            const engine::ChunkShape& shape) const {
    engine::ChunkData data = engine::ChunkData::of_size(shape.data_bytes(layout));
    std::byte* out = data.bytes.get();
    for (int32_t i = 0; i < shape.num_blocks; ++i) {
      for (int32_t group = 0; group < layout.num_groups(); ++group) {
        if (!shape.has(group, i)) continue;
        const auto bytes = static_cast<size_t>(layout.block_bytes[group]);
        std::fill_n(out, bytes, byte_of(chain, shape.index * layout.chunk_blocks() + i, group));
        out += bytes;
      }
    }
    return data;
  }
  engine::ChunkShape shape_of(int32_t index, int32_t num_blocks) const {
    return {index, num_blocks,
            std::vector<uint64_t>(layout.num_groups(), engine::low_bits(num_blocks))};
  }

  /// Saves all full blocks of the chain.
  Result<void> save(const engine::Chain& chain) {
    const engine::NamedChain named = store->name(chain);
    std::vector<engine::ChunkShape> shapes;
    std::vector<engine::ChunkData> data;
    std::vector<engine::ChunkToSave> chunks;
    const int32_t chunk_blocks = layout.chunk_blocks();
    for (int32_t first = 0; first < named.num_blocks(); first += chunk_blocks) {
      shapes.push_back(
          shape_of(first / chunk_blocks, std::min(chunk_blocks, named.num_blocks() - first)));
      data.push_back(data_of(named, shapes.back()));
    }
    for (size_t i = 0; i < shapes.size(); ++i) {
      chunks.push_back({&named, &shapes[i], data[i].span(), recompute_us});
    }
    return store->save(chunks);
  }

  /// Restores the chain's blocks; each is compared with its expected content.
  int32_t restore(const engine::Chain& chain, int32_t first_block = 0,
                  int32_t max_blocks = 1 << 20) {
    const engine::NamedChain named = store->name(chain);
    Result<std::vector<engine::FoundChunk>> found = store->find(named, first_block, max_blocks);
    REQUIRE(found.ok());
    const int32_t chunk_blocks = layout.chunk_blocks();
    int32_t blocks = 0;
    int32_t next_index = first_block / chunk_blocks;
    for (engine::FoundChunk& chunk : *found) {
      if (chunk.shape.index != next_index) continue;  // another candidate for the same place
      const int32_t usable = chunk.shape.num_blocks;
      Result<engine::ChunkData> data = store->load(named, &chunk);
      if (!data.ok()) break;
      // The stored row may continue beyond the chain.
      const std::byte* at = data->bytes.get();
      for (int32_t i = 0; i < usable; ++i) {
        for (int32_t group = 0; group < layout.num_groups(); ++group) {
          if (!chunk.shape.has(group, i)) continue;
          const std::byte want = byte_of(named, chunk.shape.index * chunk_blocks + i, group);
          const auto bytes = static_cast<size_t>(layout.block_bytes[group]);
          REQUIRE(std::all_of(at, at + bytes, [&](std::byte b) { return b == want; }));
          at += bytes;
        }
      }
      blocks += usable;
      ++next_index;
      if (usable < chunk_blocks) break;
    }
    return blocks;
  }

  TempDir folder;
  engine::KvLayout layout;
  uint64_t budget_bytes = 1ull << 30;
  uint64_t owner_budget_bytes = 0;
  uint64_t owner_pinned_bytes = 1ull << 30;
  int64_t now_ms = 1'700'000'000'000;
  const char* vfs = nullptr;
  double recompute_us = 0;  ///< of each chunk that is saved
  std::unique_ptr<engine::SqliteStore> store;
};

/// A connection of its own to the rig's database. It waits for no disk.
inline Database outside(const StoreRig& rig) {
  Result<Database> database = Database::open(rig.store->file());
  REQUIRE(database.ok());
  REQUIRE(database->execute("PRAGMA synchronous=OFF").ok());
  return std::move(database).value();
}

/// Runs SQL on the database from outside the store.
inline void meddle(const StoreRig& rig, const std::string& sql) {
  const Result<void> done = outside(rig).execute(sql);
  REQUIRE_MESSAGE(done.ok(), (done.ok() ? "" : done.error().message));
}

inline int64_t ask(const StoreRig& rig, const std::string& sql) {
  const Result<int64_t> value = outside(rig).query_integer(sql);
  REQUIRE_MESSAGE(value.ok(), (value.ok() ? "" : value.error().message));
  return *value;
}

inline std::string read_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_file(const std::filesystem::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
}

}  // namespace hearth::tests
