// Events of what a store saves and evicts.

#include "engine/store/published_rows.h"

#include <doctest/doctest.h>

#include <map>
#include <set>

#include "engine/store/ram_store.h"
#include "tests/cache_mirror.h"
#include "tests/unit/engine/store_rig.h"

namespace hearth::engine {
namespace {

using tests::CacheMirror;
using tests::StoreRig;

Chain published(Chain chain) {
  chain.published = "docs";
  return chain;
}

/// What the database has, by the names of these chains' blocks: every group of every row.
std::set<CacheMirror::Block> stored_blocks(const StoreRig& rig, const std::vector<Chain>& chains) {
  std::map<std::string, std::pair<const NamedChain*, size_t>> by_last;
  std::vector<std::unique_ptr<NamedChain>> named;
  for (const Chain& chain : chains) {
    if (chain.published.empty()) continue;
    named.push_back(std::make_unique<NamedChain>(rig.store->name(chain)));
    for (size_t i = 1; i < named.back()->names.size(); ++i) {
      by_last[to_hex(named.back()->names[i])] = {named.back().get(), i};
    }
  }
  std::set<CacheMirror::Block> out;
  Database database = tests::outside(rig);
  Statement rows = database.prepare("SELECT last, num_blocks, present FROM chunk").value();
  while (rows.step().value()) {
    const auto found = by_last.find(to_hex(hash_from(rows.blob(0))));
    if (found == by_last.end()) continue;
    const auto [chain, last] = found->second;
    const auto count = static_cast<size_t>(rows.integer(1));
    const auto* present = reinterpret_cast<const uint64_t*>(rows.blob(2).data());
    for (int32_t group = 0; group < rig.layout.num_groups(); ++group) {
      for (size_t block = 0; block < count; ++block) {
        if ((present[group] >> block & 1u) == 0) continue;
        out.insert(
            {CacheTier::kDatabase, group, event_hash(chain->names[last - count + block + 1])});
      }
    }
  }
  return out;
}

TEST_CASE(
    "a mirror kept from the store's events equals the database, whatever is saved and evicted") {
  StoreRig rig;
  rig.budget_bytes = 24 << 20;
  rig.reopen();
  CacheMirror mirror;
  std::vector<Chain> chains;
  std::mt19937 random(7);
  size_t most = 0;
  for (int i = 0; i < 60; ++i) {
    Chain chain = rig.chain(20 + static_cast<int32_t>(random() % 60), random() % 12);
    if (random() % 4 != 0) chain = published(chain);
    chain.root = scope_hash(chain.published.empty() ? "private" : "shared");
    chains.push_back(chain);
    rig.now_ms += 1000;
    REQUIRE(rig.save(chain).ok());
    mirror.take(rig.store->take_events(), rig.layout.block_size);
    REQUIRE(mirror.blocks() == stored_blocks(rig, chains));
    most = std::max(most, mirror.blocks().size());
  }
  CHECK(most > 100);
  CHECK(rig.store->stats().chunks_evicted > 10);

  // Another process removes rows, some of which it never knew.
  tests::meddle(rig, "DELETE FROM chunk WHERE id % 2 = 0");
  rig.store->tick();
  mirror.take(rig.store->take_events(), rig.layout.block_size);
  CHECK(mirror.blocks() == stored_blocks(rig, chains));
  CHECK_FALSE(mirror.blocks().empty());
}

TEST_CASE("what an earlier process stored is reported when it is loaded") {
  StoreRig rig;
  const Chain chain = published(rig.chain(64, 1));
  REQUIRE(rig.save(chain).ok());
  rig.reopen();
  CHECK(rig.store->take_events().empty());
  CHECK(rig.restore(chain) == 16);
  CacheMirror mirror;
  mirror.take(rig.store->take_events(), rig.layout.block_size);
  CHECK(mirror.count(CacheTier::kDatabase, 0) == 16);
  CHECK(rig.restore(chain) == 16);
  CHECK(rig.store->take_events().empty());  // nothing new
}

TEST_CASE("a private chain leaves no event, and a failed transaction none of any") {
  StoreRig rig;
  REQUIRE(rig.save(rig.chain(64, 1)).ok());
  CHECK(rig.restore(rig.chain(64, 1)) == 16);
  CHECK(rig.store->take_events().empty());
  tests::meddle(rig,
                "CREATE TRIGGER no BEFORE INSERT ON chunk BEGIN SELECT RAISE(ABORT, 'no'); END");
  CHECK_FALSE(rig.save(published(rig.chain(64, 2))).ok());
  CHECK(rig.store->take_events().empty());
}

TEST_CASE("a damaged file that is replaced: all of it is removed") {
  StoreRig rig;
  const Chain chain = published(rig.chain(64, 1));
  REQUIRE(rig.save(chain).ok());
  rig.store->tick();  // out of the log, into the file
  CacheMirror mirror;
  mirror.take(rig.store->take_events(), rig.layout.block_size);
  REQUIRE(mirror.count(CacheTier::kDatabase, 1) == 16);
  std::filesystem::resize_file(rig.store->file(), 0);
  for (int i = 0; i < 2; ++i) {
    (void)rig.restore(chain);
    rig.now_ms += 60'000;
    rig.store->tick();
  }
  mirror.take(rig.store->take_events(), rig.layout.block_size);
  CHECK(mirror.blocks().empty());
  REQUIRE(rig.save(chain).ok());
  mirror.take(rig.store->take_events(), rig.layout.block_size);
  CHECK(mirror.count(CacheTier::kDatabase, 1) == 16);
}

TEST_CASE("a store in host memory reports its own blocks, and those of the database below") {
  StoreRig rig;
  const KvLayout layout = rig.layout;
  const int64_t chunk_bytes = (layout.block_bytes[0] + layout.block_bytes[1]) * 8;
  RamStore ram(layout, static_cast<uint64_t>(chunk_bytes) * 5 / 2, std::move(rig.store));
  ram.tick();
  CacheMirror mirror;
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    const NamedChain named = ram.name(published(rig.chain(32, seed)));
    const ChunkShape shape = rig.shape_of(0, 8);
    const ChunkData data = rig.data_of(named, shape);
    const ChunkToSave chunk{&named, &shape, {data.bytes.get(), data.size}, 0};
    REQUIRE(ram.save({&chunk, 1}).ok());
    mirror.take(ram.take_events(), layout.block_size);
    CHECK(mirror.count(CacheTier::kHost, 0) == std::min(8 * static_cast<int32_t>(seed), 16));
    CHECK(mirror.count(CacheTier::kDatabase, 0) == 8 * static_cast<int32_t>(seed));
  }
}

}  // namespace
}  // namespace hearth::engine
