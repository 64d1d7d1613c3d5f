// Host memory as a tier in front of a database, or alone.

#include "engine/store/ram_store.h"

#include "engine/store/store_admin.h"
#include "tests/unit/engine/store_rig.h"

using namespace hearth;          // NOLINT
using namespace hearth::engine;  // NOLINT
using namespace hearth::tests;   // NOLINT

namespace {

/// The rig's chains and checks on a RamStore, with or without the rig's database below it.
struct RamRig {
  explicit RamRig(uint64_t budget_bytes, bool with_database = false) {
    std::unique_ptr<BlockStore> below;
    if (with_database) below = std::move(rig.store);
    ram = std::make_unique<RamStore>(rig.layout, budget_bytes, std::move(below));
  }

  void save(const Chain& chain, int32_t from_chunk = 0) {
    const NamedChain named = ram->name(chain);
    const int32_t chunk_blocks = rig.layout.chunk_blocks();
    for (int32_t index = from_chunk; index * chunk_blocks < named.num_blocks(); ++index) {
      const ChunkShape shape =
          rig.shape_of(index, std::min(chunk_blocks, named.num_blocks() - index * chunk_blocks));
      ChunkData data = rig.data_of(named, shape);
      const ChunkToSave chunk{&named, &shape, data.span(), 0};
      REQUIRE(ram->save({&chunk, 1}).ok());
    }
  }
  /// Blocks found from `first` on, each checked when loaded.
  int32_t restore(const Chain& chain, int32_t first = 0) {
    const NamedChain named = ram->name(chain);
    Result<std::vector<FoundChunk>> found = ram->find(named, first, named.num_blocks());
    REQUIRE(found.ok());
    int32_t blocks = 0;
    int32_t next = first / rig.layout.chunk_blocks();
    for (FoundChunk& chunk : *found) {
      if (chunk.shape.index != next) continue;
      const int32_t usable = chunk.shape.num_blocks;
      Result<ChunkData> data = ram->load(named, &chunk);
      REQUIRE(data.ok());
      REQUIRE(data->size == chunk.shape.data_bytes(rig.layout));
      const std::byte* at = data->bytes.get();
      for (int32_t i = 0; i < usable; ++i) {
        for (int32_t group = 0; group < rig.layout.num_groups(); ++group) {
          const int32_t block = chunk.shape.index * rig.layout.chunk_blocks() + i;
          const std::byte want = StoreRig::byte_of(named, block, group);
          const auto bytes = static_cast<size_t>(rig.layout.block_bytes[group]);
          REQUIRE(std::all_of(at, at + bytes, [&](std::byte b) { return b == want; }));
          at += bytes;
        }
      }
      ram->recycle(std::move(*data));
      blocks += usable;
      ++next;
    }
    return blocks;
  }

  StoreRig rig;
  std::unique_ptr<RamStore> ram;
};

constexpr uint64_t kPlenty = 64 << 20;
constexpr int32_t kChunkTokens = 32;  // of small_layout(): 8 blocks of 4

}  // namespace

TEST_CASE("ram store: a chain is read back, and its beginning serves another") {
  RamRig rig(kPlenty);
  const Chain chain = rig.rig.chain(3 * kChunkTokens + 9, 1);
  CHECK(rig.restore(chain) == 0);
  rig.save(chain);
  CHECK(rig.restore(chain) == 26);
  CHECK(rig.restore(chain, 8) == 18);
  Chain other = rig.rig.chain(3 * kChunkTokens, 2);
  std::copy_n(chain.tokens.begin(), kChunkTokens + 13, other.tokens.begin());
  CHECK(rig.restore(other) == 8 + 3);
  Chain of_another = chain;
  of_another.root = scope_hash("another");
  CHECK(rig.restore(of_another) == 0);
  const StoreStats stats = rig.ram->stats();
  CHECK(stats.ram_chunks == 4);
  CHECK(stats.ram_loaded == 4 + 3 + 2);
  CHECK(stats.takes_offers());
  CHECK(stats.state == StoreState::kOff);
}

TEST_CASE("ram store: names that collide are distinguished by tokens") {
  RamRig rig(kPlenty);
  const Chain chain = rig.rig.chain(2 * kChunkTokens, 1);
  rig.save(chain);
  NamedChain liar = rig.ram->name(chain);
  liar.chain.tokens[3] ^= 1;  // the names are still the other's
  const auto found = rig.ram->find(liar, 0, 16);
  REQUIRE(found.ok());
  CHECK(found->empty());
}

TEST_CASE("ram store: a chunk that has grown replaces its older form") {
  RamRig rig(kPlenty);
  Chain chain = rig.rig.chain(kChunkTokens + 8, 1);
  rig.save(chain);
  const uint64_t small = rig.ram->stats().ram_bytes;
  const Chain grown = rig.rig.chain(2 * kChunkTokens, 1);
  CHECK(std::equal(chain.tokens.begin(), chain.tokens.end(), grown.tokens.begin()));
  rig.save(grown, 1);
  CHECK(rig.ram->stats().ram_chunks == 2);
  CHECK(rig.ram->stats().ram_bytes > small);
  CHECK(rig.restore(grown) == 16);
  rig.save(chain);  // is there
  CHECK(rig.ram->stats().ram_chunks == 2);
}

TEST_CASE("ram store: the owner with the most loses first, least recently used, from its end") {
  // Room for five chunks of 1 MiB.
  RamRig rig((5 << 20) + (1 << 19));
  const Chain a = rig.rig.chain(2 * kChunkTokens, 1);
  const Chain b = rig.rig.chain(2 * kChunkTokens, 2);
  const Chain theirs = rig.rig.chain(kChunkTokens, 3, "uid:2");
  rig.save(theirs);
  rig.save(a);
  rig.save(b);
  CHECK(rig.ram->stats().ram_chunks == 5);
  CHECK(rig.restore(a) == 16);  // a use
  rig.save(rig.rig.chain(kChunkTokens, 4));
  CHECK(rig.ram->stats().ram_evicted == 1);
  CHECK(rig.restore(b) == 8);  // its end went
  CHECK(rig.restore(a) == 16);
  CHECK(rig.restore(theirs) == 8);
  CHECK(rig.ram->stats().ram_bytes <= rig.ram->stats().ram_budget_bytes);
  // A chain larger than all of it keeps its beginning.
  rig.save(rig.rig.chain(20 * kChunkTokens, 5));
  CHECK(rig.restore(rig.rig.chain(20 * kChunkTokens, 5)) >= 4 * 8);
  RamRig tiny(1000);
  tiny.save(a);
  CHECK(tiny.ram->stats().ram_chunks == 0);
  CHECK(tiny.restore(a) == 0);
}

TEST_CASE("ram store: loading an evicted chunk fails; touching it asks for a new offer") {
  RamRig rig((1 << 20) + (1 << 19));
  const Chain chain = rig.rig.chain(kChunkTokens, 1);
  rig.save(chain);
  const NamedChain named = rig.ram->name(chain);
  auto found = rig.ram->find(named, 0, 8);
  REQUIRE(found.ok());
  REQUIRE(found->size() == 1);
  CHECK(*rig.ram->touch(named, 0, 8, ChunkKind::kKv));
  CHECK(rig.ram->stats().epoch == 0);
  rig.save(rig.rig.chain(kChunkTokens, 2));
  CHECK_FALSE(rig.ram->load(named, &found->front()).ok());
  CHECK_FALSE(*rig.ram->touch(named, 0, 8, ChunkKind::kKv));
  CHECK(rig.ram->stats().epoch == 1);
  CHECK_FALSE(*rig.ram->touch(named, 5, 8, ChunkKind::kKv));  // after the chain's end
  CHECK(*rig.ram->pin(named, 8, 60) == 0);
  CHECK(rig.ram->pinned(8).empty());
}

TEST_CASE("ram store: chunks without room are on disk, and kept again when they were read") {
  RamRig rig((2 << 20) + (1 << 19), true);
  const Chain chain = rig.rig.chain(4 * kChunkTokens, 1);
  rig.save(chain);
  CHECK(rig.ram->stats().entries == 4);
  CHECK(rig.ram->stats().ram_chunks == 2);
  CHECK(rig.restore(chain) == 32);
  const uint64_t loaded = rig.ram->stats().ram_loaded;
  CHECK(loaded >= 1);
  CHECK(rig.ram->stats().chunks_loaded == 4);
  const Chain other = rig.rig.chain(2 * kChunkTokens, 2);
  rig.save(other);
  CHECK(rig.restore(other) == 16);
  CHECK(rig.ram->stats().ram_loaded == loaded + 2);  // nothing was read from disk
  const NamedChain named = rig.ram->name(chain);
  CHECK(*rig.ram->touch(named, 3, 8, ChunkKind::kKv));
  CHECK(*rig.ram->pin(named, 8, 60) > 0);
  rig.ram->tick();
}

TEST_CASE("ram store: chunks pinned in the database are evicted last, and never exceed the bound") {
  // Room for three chunks of 1 MiB.
  RamRig rig((3 << 20) + (1 << 19), true);
  const auto in_memory = [&rig](const Chain& chain) {
    const uint64_t before = rig.ram->stats().ram_loaded;
    rig.restore(chain);
    return rig.ram->stats().ram_loaded - before;
  };
  const Chain pinned = rig.rig.chain(kChunkTokens, 1);
  rig.save(pinned);
  CHECK(rig.ram->stats().ram_pinned_bytes == 0);
  CHECK(*rig.ram->pin(rig.ram->name(pinned), 8, 60) == 8);
  CHECK(rig.ram->stats().ram_pinned_bytes == rig.ram->stats().ram_bytes);
  // Others come and go; it was used longest ago, and stays.
  for (uint32_t seed = 2; seed < 8; ++seed) rig.save(rig.rig.chain(kChunkTokens, seed));
  CHECK(rig.ram->stats().ram_evicted == 4);
  CHECK(rig.ram->stats().ram_chunks == 3);
  CHECK(in_memory(pinned) == 1);
  // Pinned chunks of another owner stay too, although it has the most; unpinned ones are evicted.
  std::vector<Chain> theirs;
  for (uint32_t seed = 20; seed < 23; ++seed) {
    theirs.push_back(rig.rig.chain(kChunkTokens, seed, "uid:2"));
    rig.save(theirs.back());
    CHECK(*rig.ram->pin(rig.ram->name(theirs.back()), 8, 60) == 8);
  }
  const StoreStats full = rig.ram->stats();
  CHECK(full.ram_bytes <= full.ram_budget_bytes);
  CHECK(full.ram_pinned_bytes == full.ram_bytes);  // nothing else is left, and one pinned went
  CHECK(full.ram_chunks == 3);
  // An expired pin does not count, from the next tick on.
  rig.rig.now_ms += 61'000;
  rig.ram->tick();
  CHECK(rig.ram->stats().ram_pinned_bytes == 0);
  rig.save(rig.rig.chain(kChunkTokens, 30));
  CHECK(rig.ram->stats().ram_bytes <= full.ram_budget_bytes);
  CHECK(in_memory(rig.rig.chain(kChunkTokens, 30)) == 1);
}

TEST_CASE("ram store: a pin set by another process holds here from the next tick on") {
  RamRig rig((2 << 20) + (1 << 19), true);
  const Chain pinned = rig.rig.chain(kChunkTokens, 1);
  rig.save(pinned);
  {
    // As hearth cache pin does: in the database's file.
    Result<std::vector<std::filesystem::path>> files = StoreAdmin::files(rig.rig.folder.path());
    REQUIRE(files.ok());
    REQUIRE(files->size() == 1);
    Result<StoreAdmin> admin = StoreAdmin::open(files->front());
    REQUIRE(admin.ok());
    const auto entries = admin->entries();
    REQUIRE(entries.ok());
    REQUIRE(entries->size() == 1);
    const std::vector<int64_t> rows = {entries->front().row};
    REQUIRE(admin->pin(rows, rig.rig.now_ms / 1000 + 60, rig.rig.now_ms / 1000, 1 << 30).ok());
  }
  rig.ram->tick();
  CHECK(rig.ram->stats().ram_pinned_bytes == rig.ram->stats().ram_bytes);
  for (uint32_t seed = 2; seed < 8; ++seed) rig.save(rig.rig.chain(kChunkTokens, seed));
  const uint64_t loaded = rig.ram->stats().ram_loaded;
  CHECK(rig.restore(pinned) == 8);
  CHECK(rig.ram->stats().ram_loaded == loaded + 1);
}
