// States of recurrent layers in the database: each is found by the chain and the block it was made
// from; a row that was damaged, forged, half written or made for another layout is a miss.

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "killed_writer.h"
#include "store_rig.h"

namespace hearth::tests {

using namespace engine;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kStateBytes = 48;  // no chunk of KV has as many

/// KV and states; or states alone.
KvLayout states_layout(bool with_kv) {
  KvLayout layout = small_layout(with_kv ? "hybrid" : "recurrent");
  layout.block_bytes = {kStateBytes};
  if (with_kv) layout.block_bytes.insert(layout.block_bytes.begin(), 64);
  layout.state_group = layout.num_groups() - 1;
  return layout;
}

/// The state at the end of that block, in the row that the engine would write.
ChunkShape state_shape(const KvLayout& layout, int32_t block) {
  const int32_t in_chunk = block % layout.chunk_blocks();
  ChunkShape shape{block / layout.chunk_blocks(), in_chunk + 1,
                   std::vector<uint64_t>(layout.num_groups(), 0)};
  shape.present[layout.state_group] = uint64_t{1} << in_chunk;
  return shape;
}

ChunkShape without_states(const KvLayout& layout, ChunkShape shape) {
  shape.present[layout.state_group] = 0;
  return shape;
}

/// Saves all full blocks of the chain and the states at the ends of `blocks`.
Result<void> save(StoreRig& rig, const Chain& chain, const std::vector<int32_t>& blocks) {
  const KvLayout& layout = rig.layout;
  const NamedChain named = rig.store->name(chain);
  std::vector<ChunkShape> shapes;
  const int32_t chunk_blocks = layout.chunk_blocks();
  for (int32_t first = 0; layout.num_groups() > 1 && first < named.num_blocks();
       first += chunk_blocks) {
    const int32_t count = std::min(chunk_blocks, named.num_blocks() - first);
    shapes.push_back(without_states(layout, rig.shape_of(first / chunk_blocks, count)));
  }
  for (const int32_t block : blocks) shapes.push_back(state_shape(layout, block));
  std::vector<ChunkData> data;
  std::vector<ChunkToSave> chunks;
  for (const ChunkShape& shape : shapes) data.push_back(rig.data_of(named, shape));
  for (size_t i = 0; i < shapes.size(); ++i) {
    chunks.push_back({&named, &shapes[i], data[i].span(), rig.recompute_us});
  }
  return rig.store->save(chunks);
}

/// The blocks whose states are read back; each is compared with its expected content.
std::vector<int32_t> restored_states(const StoreRig& rig, const Chain& chain) {
  const KvLayout& layout = rig.layout;
  const NamedChain named = rig.store->name(chain);
  Result<std::vector<FoundChunk>> found = rig.store->find(named, 0, 1 << 20);
  REQUIRE(found.ok());
  std::vector<int32_t> blocks;
  for (FoundChunk& chunk : *found) {
    if (!chunk.shape.is_state(layout)) continue;
    const Result<ChunkData> data = rig.store->load(named, &chunk);
    if (!data.ok()) continue;
    const int32_t block = chunk.shape.index * layout.chunk_blocks() + chunk.shape.num_blocks - 1;
    const std::byte want = StoreRig::byte_of(named, block, layout.state_group);
    REQUIRE(data->size == kStateBytes);
    REQUIRE(std::all_of(data->bytes.get(), data->bytes.get() + data->size,
                        [&](std::byte byte) { return byte == want; }));
    blocks.push_back(block);
  }
  std::ranges::sort(blocks);
  return blocks;
}

using Blocks = std::vector<int32_t>;

std::string of_states(std::string_view sql) {
  return fmt::format("{} WHERE length(data) = {}", sql, kStateBytes);
}

/// Flips one bit of that byte of a state's blob; false past its end.
bool flip(const StoreRig& rig, std::string_view column, size_t at) {
  Database database = outside(rig);
  std::vector<std::byte> bytes;
  {
    Result<Statement> read =
        database.prepare(of_states(fmt::format("SELECT {} FROM chunk", column)));
    REQUIRE(read.ok());
    REQUIRE(read->step().ok());
    const std::span<const std::byte> blob = read->blob(0);
    bytes.assign(blob.begin(), blob.end());
  }
  if (at >= bytes.size()) return false;
  bytes[at] ^= std::byte{1} << at % 8;
  Result<Statement> write =
      database.prepare(of_states(fmt::format("UPDATE chunk SET {} = ?", column)));
  REQUIRE(write.ok());
  REQUIRE(write->bind(0, std::span<const std::byte>(bytes)).run().ok());
  REQUIRE(database.changes() == 1);
  return true;
}

}  // namespace

TEST_CASE("a state is found by the chain and the block it was made from") {
  for (const bool with_kv : {true, false}) {
    CAPTURE(with_kv);
    StoreRig rig(states_layout(with_kv));
    REQUIRE(rig.layout.chunk_blocks() == 64);
    const Chain chain = rig.chain(4 * 150 + 3, 1);
    const Blocks blocks = {2, 63, 64, 149};
    REQUIRE(save(rig, chain, blocks).ok());
    CHECK(rig.store->stats().entries == (with_kv ? 7 : 4));
    CHECK(restored_states(rig, chain) == blocks);
    rig.reopen();
    CHECK(restored_states(rig, chain) == blocks);
    REQUIRE(save(rig, chain, blocks).ok());  // written once
    CHECK(rig.store->stats().entries == (with_kv ? 7 : 4));

    Chain parted = chain;  // differs in block 63
    parted.tokens[4 * 63] += 1;
    CHECK(restored_states(rig, parted) == Blocks{2});
    parted = chain;  // in the block after a state
    parted.tokens[4 * 3] += 1;
    CHECK(restored_states(rig, parted) == Blocks{2});
    parted.tokens[4 * 2] += 1;
    CHECK(restored_states(rig, parted) == Blocks{});
    Chain shorter = chain;
    shorter.tokens.resize(4 * 64);
    CHECK(restored_states(rig, shorter) == Blocks{2, 63});
    Chain other_owner = chain;
    other_owner.root = scope_hash("another root");
    CHECK(restored_states(rig, other_owner) == Blocks{});

    // A chain that grows replaces its last chunk of KV, and no state.
    Chain longer = rig.chain(4 * 160, 1);
    std::copy(chain.tokens.begin(), chain.tokens.begin() + 4 * 150, longer.tokens.begin());
    REQUIRE(save(rig, longer, {159}).ok());
    CHECK(restored_states(rig, longer) == Blocks{2, 63, 64, 149, 159});
    CHECK(rig.store->stats().entries == (with_kv ? 8 : 5));
  }
}

TEST_CASE("a state that is used is kept, one that is not is evicted") {
  StoreRig rig(states_layout(false));
  rig.recompute_us = 1000;
  rig.budget_bytes = 20 * kStateBytes;
  rig.reopen();
  const Chain used = rig.chain(4 * 5, 1000);
  const Chain unused = rig.chain(4 * 5, 1001);
  REQUIRE(save(rig, used, {2, 4}).ok());
  REQUIRE(save(rig, unused, {2, 4}).ok());
  const NamedChain named = rig.store->name(used);
  for (uint32_t seed = 0; seed < 40; ++seed) {
    rig.now_ms += 10'000;
    if (seed < 10) CHECK(*rig.store->touch(named, 0, 3, ChunkKind::kState));
    rig.store->tick();
    REQUIRE(save(rig, rig.chain(4 * 5, seed), {4}).ok());
  }
  CHECK(restored_states(rig, used) == Blocks{2});
  CHECK(restored_states(rig, unused) == Blocks{});
  const uint64_t epoch = rig.store->stats().epoch;
  CHECK_FALSE(*rig.store->touch(named, 0, 5, ChunkKind::kState));  // evicted
  CHECK(rig.store->stats().epoch == epoch + 1);                    // it may be offered again
  CHECK_FALSE(*rig.store->touch(named, 0, 3, ChunkKind::kKv));     // no such chunk
}

TEST_CASE("each byte of a state's row, flipped: a miss, never another state") {
  for (const bool with_kv : {true, false}) {
    CAPTURE(with_kv);
    StoreRig rig(states_layout(with_kv));
    const Chain chain = rig.chain(4 * 5, 1);
    int flipped = 0;
    for (const char* column :
         {"data", "checksum", "tokens", "present", "root", "parent", "first", "last", "prefix"}) {
      CAPTURE(column);
      for (size_t at = 0;; ++at) {
        CAPTURE(at);
        meddle(rig, "DELETE FROM chunk");
        REQUIRE(save(rig, chain, {2}).ok());
        if (!flip(rig, column, at)) break;
        CHECK(restored_states(rig, chain) == Blocks{});
        if (with_kv) CHECK(rig.restore(chain) == 5);
        ++flipped;
      }
      CHECK(restored_states(rig, chain) == Blocks{2});
    }
    // kStateBytes, six hashes, the tokens of three blocks, a mask per group.
    CHECK(flipped == kStateBytes + 6 * 16 + 3 * 16 + (with_kv ? 16 : 8));
    CHECK(rig.store->stats().chunks_refused > 0);
  }
}

TEST_CASE("a state that was put in another's place is a miss") {
  const char* crafts[] = {
      "UPDATE chunk SET num_blocks = num_blocks - 1",
      "UPDATE chunk SET num_blocks = num_blocks + 1",
      "UPDATE chunk SET num_blocks = 4294967297",
      "UPDATE chunk SET idx = idx + 1",
      "UPDATE chunk SET idx = -1",
      // At block 1 in place of 2; in two blocks; in the group of KV; in both.
      "UPDATE chunk SET present = x'00000000000000000200000000000000'",
      "UPDATE chunk SET present = x'00000000000000000600000000000000'",
      "UPDATE chunk SET present = x'04000000000000000000000000000000'",
      "UPDATE chunk SET present = x'04000000000000000400000000000000'",
      "UPDATE chunk SET present = x''",
      "UPDATE chunk SET owner = 'uid:2'",
      // That of another chain, alone, with its checksum, and with all that names it kept.
      "UPDATE chunk SET data = (SELECT data FROM other)",
      "UPDATE chunk SET (data, checksum) = (SELECT data, checksum FROM other)",
      "UPDATE chunk SET (data, checksum, tokens) = (SELECT data, checksum, tokens FROM other)",
      "UPDATE chunk SET (data, checksum, tokens, prefix) = "
      "(SELECT data, checksum, tokens, prefix FROM other)",
  };
  StoreRig rig(states_layout(true));
  const Chain chain = rig.chain(4 * 5, 1);
  const Chain other = rig.chain(4 * 5, 2);
  REQUIRE(save(rig, other, {2}).ok());
  meddle(rig, of_states("CREATE TABLE other AS SELECT * FROM chunk"));
  for (const char* craft : crafts) {
    CAPTURE(craft);
    meddle(rig, "DELETE FROM chunk");
    rig.store->tick();
    REQUIRE(save(rig, chain, {2}).ok());
    REQUIRE(restored_states(rig, chain) == Blocks{2});
    meddle(rig, of_states(craft));
    CHECK(restored_states(rig, chain) == Blocks{});
    CHECK(restored_states(rig, other) == Blocks{});
  }
}

TEST_CASE("flipped bytes anywhere in a file with states: a miss or the right bytes") {
  StoreRig rig(states_layout(true));
  const Chain chain = rig.chain(4 * 100, 1);
  const Blocks blocks = {2, 40, 99};
  REQUIRE(save(rig, chain, blocks).ok());
  const fs::path file = rig.store->file();
  rig.store.reset();
  const std::string good = read_file(file);
  std::mt19937 random(7);
  int served = 0;
  int missed = 0;
  for (int i = 0; i < (full_counts() ? 10'000 : 48); ++i) {
    std::string bad = good;
    const size_t at = random() % bad.size();
    CAPTURE(at);
    bad[at] = static_cast<char>(bad[at] ^ (1 << random() % 8));
    remove_store_file(file);
    write_file(file, bad);
    rig.reopen();
    const Blocks found = restored_states(rig, chain);
    CHECK(std::ranges::includes(blocks, found));
    (found == blocks ? served : missed) += 1;
    rig.store.reset();
  }
  CHECK(served > 0);
  CHECK(missed > 0);
}

TEST_CASE("states of another layout are a miss") {
  StoreRig rig(states_layout(true));
  const Chain chain = rig.chain(4 * 5, 1);
  REQUIRE(save(rig, chain, {2}).ok());
  const fs::path mine = rig.store->file();
  rig.store.reset();
  SUBCASE("states of another size") { rig.layout.block_bytes[1] += 16; }
  SUBCASE("KV of another size") { rig.layout.block_bytes[0] += 16; }
  SUBCASE("the state's group is KV") { rig.layout.state_group = -1; }
  SUBCASE("the groups change places") {
    std::swap(rig.layout.block_bytes[0], rig.layout.block_bytes[1]);
    rig.layout.state_group = 0;
  }
  SUBCASE("states alone") { rig.layout = states_layout(false); }
  SUBCASE("another block size") { rig.layout.block_size = 8; }
  rig.reopen();
  const fs::path theirs = rig.store->file();
  REQUIRE(theirs != mine);
  CHECK(rig.store->stats().entries == 0);
  rig.store.reset();
  remove_store_file(theirs);
  fs::copy_file(mine, theirs);
  rig.reopen();
  CHECK(rig.store->stats().state == StoreState::kWriting);
  CHECK(rig.store->stats().entries == 0);
  const NamedChain named = rig.store->name(chain);
  CHECK(rig.store->find(named, 0, 5)->empty());
}

TEST_CASE("a writer of states killed at any moment leaves no other state") {
  StoreRig rig(states_layout(true));
  rig.budget_bytes = 64 << 10;  // evicts too
  rig.reopen();
  rig.store.reset();
  const auto chain = [&](uint32_t seed) { return rig.chain(4 * 100, seed); };
  size_t restored = 0;
  kill_writers(
      [&](const std::function<void()>& report_saved) {
        rig.reopen();
        for (uint32_t i = 0;; ++i) {
          const int32_t last = 9 + static_cast<int32_t>(i * 13 % 90);
          if (!save(rig, chain(i % 9), {last / 2, last}).ok()) {
            rig.now_ms += 1'000;
          } else {
            report_saved();
          }
          rig.store->tick();
        }
      },
      [&] {
        rig.reopen();
        CHECK(rig.store->stats().state == StoreState::kWriting);
        for (uint32_t seed = 0; seed < 9; ++seed) {
          restored += restored_states(rig, chain(seed)).size();
        }
        CHECK(rig.store->stats().chunks_refused == 0);
        rig.store.reset();
      });
  CHECK(restored > 0);
}

}  // namespace hearth::tests
