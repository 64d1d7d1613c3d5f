#include <doctest/doctest.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "killed_writer.h"
#include "store_rig.h"
#include "tests/skip.h"

namespace hearth::tests {

using namespace engine;
namespace fs = std::filesystem;

TEST_CASE("a chain is read back, also in another process, whole or in part") {
  StoreRig rig;
  REQUIRE(rig.layout.chunk_blocks() == 8);
  const Chain chain = rig.chain(4 * 20 + 3, 1);  // 20 full blocks: chunks of 8, 8 and 4
  REQUIRE(rig.save(chain).ok());
  CHECK(rig.store->stats().entries == 3);
  CHECK(rig.store->stats().state == StoreState::kWriting);
  CHECK(rig.restore(chain) == 20);
  rig.reopen();
  CHECK(rig.store->stats().entries == 3);
  CHECK(rig.restore(chain) == 20);
  CHECK(rig.restore(chain, 8) == 12);  // after what is in memory
  CHECK(rig.restore(chain, 0, 11) == 11);

  Chain parted = chain;  // differs in block 10: the first ten are common
  parted.tokens[41] += 1;
  CHECK(rig.restore(parted) == 10);
  Chain other_owner = chain;
  other_owner.root = scope_hash("another root");
  CHECK(rig.restore(other_owner) == 0);
  CHECK(rig.restore(rig.chain(80, 2)) == 0);
  Chain shorter = chain;
  shorter.tokens.resize(4 * 5 + 1);
  CHECK(rig.restore(shorter) == 5);
}

TEST_CASE("a chain that grows replaces its last chunk; the same chain is written once") {
  StoreRig rig;
  Chain chain = rig.chain(4 * 20, 1);
  Chain shorter = chain;
  shorter.tokens.resize(4 * 11);
  REQUIRE(rig.save(shorter).ok());
  CHECK(rig.store->stats().entries == 2);
  REQUIRE(rig.save(chain).ok());
  CHECK(rig.store->stats().entries == 3);  // 8, 8 for 3, 4
  CHECK(rig.store->stats().bytes == 20u << 17);
  const uint64_t saved = rig.store->stats().chunks_saved;
  REQUIRE(rig.save(chain).ok());
  REQUIRE(rig.save(shorter).ok());  // a part of what is there
  CHECK(rig.store->stats().chunks_saved == saved);
  CHECK(rig.restore(chain) == 20);
}

TEST_CASE("many chains with one beginning: each is found by its own name") {
  StoreRig rig;
  std::vector<Chain> chains;
  for (uint32_t i = 0; i < 40; ++i) {
    Chain chain = rig.chain(4 * 7, 1);  // one chunk; the first 5 blocks are common
    chain.tokens[4 * 5] = static_cast<int32_t>(2000 + i);
    REQUIRE(rig.save(chain).ok());
    chains.push_back(std::move(chain));
  }
  for (const Chain& chain : chains) CHECK(rig.restore(chain) == 7);
  Chain fresh = rig.chain(4 * 7, 1);
  fresh.tokens[4 * 5] = 5000;
  CHECK(rig.restore(fresh) == 5);
}

TEST_CASE("sliding groups keep what was in the window") {
  StoreRig rig;
  const Chain chain = rig.chain(4 * 8, 1);
  const NamedChain named = rig.store->name(chain);
  ChunkShape shape = rig.shape_of(0, 8);
  shape.present[1] = 0xc0;  // the last two
  ChunkData data = rig.data_of(named, shape);
  const ChunkToSave chunk{&named, &shape, data.span()};
  REQUIRE(rig.store->save(std::span(&chunk, 1)).ok());
  const auto found = rig.store->find(named, 0, 8);
  REQUIRE(found.ok());
  REQUIRE(found->size() == 1);
  CHECK(found->front().shape.present == std::vector<uint64_t>{0xff, 0xc0});
  CHECK(rig.restore(chain) == 8);
  // The same blocks with more of the window replace it; with less, nothing is written.
  CHECK(rig.save(chain).ok());
  CHECK(rig.store->stats().entries == 1);
  REQUIRE(rig.store->save(std::span(&chunk, 1)).ok());
  CHECK(rig.store->stats().entries == 1);
  CHECK(rig.store->find(named, 0, 8)->front().shape.present == std::vector<uint64_t>{0xff, 0xff});
}

TEST_CASE("another key, model, layout or format is a miss") {
  StoreRig rig;
  const Chain chain = rig.chain(4 * 10, 1);
  REQUIRE(rig.save(chain).ok());

  SUBCASE("key") {
    rig.store.reset();
    fs::remove(rig.folder.path() / "key");
    rig.reopen();
    CHECK(rig.restore(chain) == 0);
  }
  SUBCASE("an invalid key file is put aside, and the store continues with another") {
    const fs::path key = rig.folder.path() / "key";
    rig.store.reset();
    SUBCASE("cut") { fs::resize_file(key, 100); }
    SUBCASE("empty") { fs::resize_file(key, 0); }
    SUBCASE("a FIFO") {
      fs::remove(key);
      REQUIRE(::mkfifo(key.c_str(), 0600) == 0);
    }
    SUBCASE("a folder") {
      fs::remove(key);
      fs::create_directories(key / "inside");
    }
    SUBCASE("a link") {
      fs::rename(key, rig.folder.path() / "elsewhere");
      fs::create_symlink(rig.folder.path() / "elsewhere", key);
    }
    rig.reopen();
    CHECK(rig.store->stats().state == StoreState::kWriting);
    CHECK(rig.restore(chain) == 0);
    REQUIRE(rig.save(chain).ok());
    CHECK(rig.restore(chain) == 10);
    CHECK(fs::file_size(key) == 192);
    rig.reopen();
    CHECK(rig.restore(chain) == 10);
  }
  SUBCASE("file of another model") {
    const fs::path mine = rig.store->file();
    rig.store.reset();
    rig.layout = small_layout("large");
    rig.reopen();
    CHECK(rig.restore(chain) == 0);
    const fs::path large = rig.store->file();
    REQUIRE(large != mine);
    rig.store.reset();
    remove_store_file(large);
    fs::copy_file(mine, large);
    rig.reopen();
    CHECK(rig.store->stats().entries == 0);
    CHECK(rig.restore(rig.chain(4 * 10, 1)) == 0);
    CHECK(rig.save(rig.chain(4 * 10, 1)).ok());
  }
  SUBCASE("format") {
    meddle(rig, "PRAGMA user_version=1");
    rig.reopen();
    CHECK(rig.store->stats().entries == 0);
    CHECK(rig.restore(chain) == 0);
    CHECK(rig.save(chain).ok());
    CHECK(rig.restore(chain) == 10);
  }
}

TEST_CASE("crafted rows are refused and deleted") {
  StoreRig rig;
  const Chain chain = rig.chain(4 * 10, 1);
  REQUIRE(rig.save(chain).ok());
  const char* crafts[] = {
      "UPDATE chunk SET num_blocks = 4294967297",
      "UPDATE chunk SET num_blocks = -1",
      "UPDATE chunk SET num_blocks = 7 WHERE num_blocks = 8",
      "UPDATE chunk SET idx = 9223372036854775807",
      "UPDATE chunk SET idx = idx + 1",
      "UPDATE chunk SET present = x'ffffffffffffffffffffffffffffffff'",
      "UPDATE chunk SET present = x''",
      "UPDATE chunk SET present = x'01'",
      "UPDATE chunk SET tokens = x''",
      "UPDATE chunk SET tokens = zeroblob(100000)",
      "UPDATE chunk SET data = x''",
      "UPDATE chunk SET data = zeroblob(length(data))",
      "UPDATE chunk SET data = substr(data, 1, length(data) - 1)",
      "UPDATE chunk SET checksum = x''",
      "UPDATE chunk SET checksum = zeroblob(16)",
      "UPDATE chunk SET owner = 'uid:2'",
      "UPDATE chunk SET root = zeroblob(16)",
      "UPDATE chunk SET prefix = zeroblob(16)",
      "UPDATE chunk SET parent = zeroblob(16)",
      "UPDATE chunk SET tokens = zeroblob(length(tokens))",
      "UPDATE chunk SET data = (SELECT c.data FROM chunk c WHERE c.idx = 1)",
  };
  for (const char* craft : crafts) {
    CAPTURE(craft);
    rig.store->tick();
    REQUIRE(rig.save(chain).ok());
    REQUIRE(rig.restore(chain) == 10);
    meddle(rig, craft);
    // Either a miss or refused; restore() checks what is served. The second chunk of two may be
    // whole.
    CHECK(rig.restore(chain) == 0);
    meddle(rig, "DELETE FROM chunk");
    rig.now_ms += 5'000;
  }
  CHECK(rig.store->stats().chunks_refused > 0);
}

TEST_CASE("flipped bytes anywhere in the file: a miss or the right bytes, never a crash") {
  StoreRig rig;
  rig.layout.block_bytes = {(1 << 17) - 64, 64};
  const Chain chain = rig.chain(4 * 10, 1);
  REQUIRE(rig.save(chain).ok());
  const fs::path file = rig.store->file();
  rig.store.reset();
  const std::string good = read_file(file);
  REQUIRE(good.size() > 1 << 20);
  std::mt19937 random(7);
  const int count = full_counts() ? 10'000 : 16;
  int served = 0;
  int missed = 0;
  for (int i = 0; i < count; ++i) {
    std::string bad = good;
    // Half of them in the small columns and the tree.
    const size_t at = i % 2 == 0 ? random() % bad.size() : random() % (64 << 10);
    bad[at] = static_cast<char>(bad[at] ^ (1 << random() % 8));
    CAPTURE(at);
    remove_store_file(file);
    write_file(file, bad);
    rig.reopen();
    (rig.restore(chain) == 10 ? served : missed) += 1;
    (void)rig.save(chain);
    rig.store->tick();
    CHECK(rig.restore(chain) <= 10);
    rig.store.reset();
  }
  CHECK(served > 0);
  CHECK(missed > 0);
}

TEST_CASE("a file that is truncated, empty or not a database is replaced") {
  StoreRig rig;
  const Chain chain = rig.chain(4 * 10, 1);
  REQUIRE(rig.save(chain).ok());
  const fs::path file = rig.store->file();
  rig.store.reset();
  const std::string good = read_file(file);
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{100}, size_t{32768}, good.size() / 2, good.size() - 32768}) {
    CAPTURE(size);
    remove_store_file(file);
    write_file(file, good.substr(0, size));
    rig.reopen();
    (void)rig.restore(chain);
    rig.now_ms += 60'000;
    rig.store->tick();
    REQUIRE(rig.save(chain).ok());
    CHECK(rig.restore(chain) == 10);
    rig.store.reset();
  }
  remove_store_file(file);
  write_file(file, std::string(200'000, 'x'));
  rig.reopen();
  CHECK(rig.save(chain).ok());
  CHECK(rig.restore(chain) == 10);
}

TEST_CASE("a folder in the database's place, or a database without a table, is replaced") {
  StoreRig rig;
  const Chain chain = rig.chain(4 * 10, 1);
  REQUIRE(rig.save(chain).ok());
  const fs::path file = rig.store->file();
  rig.store.reset();
  SUBCASE("folder") {
    remove_store_file(file);
    fs::create_directories(file / "inside");
  }
  for (const char* table : {"chunk", "meta", "lease"}) {
    SUBCASE(table) {
      Database database = std::move(Database::open(file)).value();
      REQUIRE(database.execute(fmt::format("DROP TABLE {}", table)).ok());
    }
  }
  SUBCASE("column") {
    Database database = std::move(Database::open(file)).value();
    REQUIRE(database.execute("ALTER TABLE chunk RENAME COLUMN hits TO strokes").ok());
  }
  rig.reopen();
  CHECK(rig.store->stats().state == StoreState::kWriting);
  REQUIRE(rig.save(chain).ok());
  CHECK(rig.restore(chain) == 10);
}

TEST_CASE("a file truncated while open: a miss, then an empty one, and no SIGBUS") {
  StoreRig rig;
  const Chain chain = rig.chain(4 * 40, 1);
  REQUIRE(rig.save(chain).ok());
  rig.store->tick();  // out of the log, into the file
  rig.reopen();
  REQUIRE(rig.restore(chain, 0, 8) == 8);  // mapped
  for (const uintmax_t size : {uintmax_t{1} << 20, uintmax_t{0}}) {
    CAPTURE(size);
    fs::resize_file(rig.store->file(), size);
    CHECK(rig.restore(chain) < 40);
    rig.now_ms += 60'000;
    rig.store->tick();
    (void)rig.restore(chain);
    rig.now_ms += 60'000;
    rig.store->tick();
    REQUIRE(rig.save(chain).ok());
    CHECK(rig.restore(chain) == 40);
    rig.store->tick();
    rig.reopen();
    CHECK(rig.restore(chain) == 40);
  }
}

TEST_CASE("one process writes, others read; an expired lease is taken over") {
  StoreRig rig;
  const Chain chain = rig.chain(4 * 10, 1);
  REQUIRE(rig.save(chain).ok());
  SqliteStoreConfig config;
  config.folder = rig.folder.path();
  config.min_free_bytes = 0;
  config.now_ms = [&rig] { return rig.now_ms; };
  SqliteStore second(config, rig.layout);
  second.tick();
  CHECK(second.stats().state == StoreState::kReading);
  const NamedChain named = second.name(chain);
  CHECK(second.find(named, 0, 10)->size() == 2);
  const ChunkShape shape = rig.shape_of(0, 8);
  const ChunkData data = rig.data_of(named, shape);
  const ChunkToSave chunk{&named, &shape, data.span()};
  CHECK_FALSE(second.save(std::span(&chunk, 1)).ok());
  CHECK(second.stats().chunks_dropped == 1);

  SUBCASE("renewed: it stays") {
    for (int i = 0; i < 20; ++i) {
      rig.now_ms += 2'000;
      rig.store->tick();
      second.tick();
      CHECK(second.stats().state == StoreState::kReading);
    }
  }
  SUBCASE("given back") {
    rig.store.reset();
    rig.now_ms += 2'000;
    second.tick();
    CHECK(second.stats().state == StoreState::kWriting);
  }
  SUBCASE("expired: taken over, and the first one notices before it writes") {
    rig.now_ms += 20'000;
    second.tick();
    CHECK(second.stats().state == StoreState::kWriting);
    CHECK_FALSE(rig.save(rig.chain(4 * 10, 2)).ok());
    CHECK(rig.store->stats().state == StoreState::kReading);
    CHECK(rig.restore(chain) == 10);
  }
  SUBCASE("of a process that is gone, or of another boot") {
    meddle(rig, "UPDATE lease SET boot = 'another', token = 'x'");
    rig.now_ms += 2'000;
    second.tick();
    CHECK(second.stats().state == StoreState::kWriting);
  }
}

TEST_CASE("a locked database is a miss while it is locked") {
  StoreRig rig;
  const Chain chain = rig.chain(4 * 10, 1);
  REQUIRE(rig.save(chain).ok());
  {
    Result<Database> other = Database::open(rig.store->file());
    REQUIRE(other.ok());
    REQUIRE(other->execute("BEGIN IMMEDIATE").ok());
    CHECK_FALSE(rig.save(rig.chain(4 * 10, 2)).ok());
    CHECK(rig.store->stats().chunks_dropped == 2);
    CHECK(rig.restore(chain) == 10);  // readers do not wait for writers
  }
  CHECK(rig.save(rig.chain(4 * 10, 2)).ok());
  CHECK(rig.restore(rig.chain(4 * 10, 2)) == 10);
}

TEST_CASE("without a folder, then with one: works without a new request") {
  StoreRig rig;
  const Chain chain = rig.chain(4 * 10, 1);
  rig.store.reset();
  fs::remove_all(rig.folder.path());
  rig.reopen();
  CHECK(rig.store->stats().state == StoreState::kDegraded);
  CHECK_FALSE(rig.store->stats().last_error.empty());
  CHECK(rig.restore(chain) == 0);
  CHECK_FALSE(rig.save(chain).ok());
  fs::create_directory(rig.folder.path());
  rig.now_ms += 60'000;
  rig.store->tick();
  CHECK(rig.store->stats().state == StoreState::kWriting);
  CHECK(rig.save(chain).ok());
  CHECK(rig.restore(chain) == 10);
}

TEST_CASE("a full disk stops writing, not reading") {
  StoreRig rig;
  const Chain chain = rig.chain(4 * 10, 1);
  REQUIRE(rig.save(chain).ok());
  rig.store->tick();
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto old_action = ::signal(SIGXFSZ, SIG_IGN);
  rlimit tight = before;
  tight.rlim_cur = 2 << 20;  // no file may grow beyond this: like a full disk
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &tight) == 0);
  CHECK_FALSE(rig.save(rig.chain(4 * 40, 2)).ok());
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  ::signal(SIGXFSZ, old_action);
  CHECK(rig.store->stats().state == StoreState::kDegraded);
  rig.now_ms += 60'000;
  rig.store->tick();
  CHECK(rig.restore(chain) == 10);
  CHECK(rig.restore(rig.chain(4 * 40, 2)) == 0);  // all or nothing
  CHECK(rig.save(rig.chain(4 * 40, 2)).ok());
  CHECK(rig.restore(rig.chain(4 * 40, 2)) == 40);
}

TEST_CASE("the budget is kept: the least useful is evicted first, chains lose their ends first") {
  StoreRig rig;
  rig.budget_bytes = 64u << 17;  // 64 blocks
  rig.reopen();
  const Chain used = rig.chain(4 * 16, 1);
  REQUIRE(rig.save(used).ok());
  for (uint32_t seed = 2; seed < 20; ++seed) {
    rig.now_ms += 100'000;
    CHECK(rig.restore(used) == 16);
    rig.store->tick();
    REQUIRE(rig.save(rig.chain(4 * 16, seed)).ok());
    CHECK(rig.store->stats().bytes <= rig.budget_bytes);
  }
  CHECK(rig.restore(used) == 16);
  CHECK(rig.restore(rig.chain(4 * 16, 2)) == 0);
  CHECK(rig.restore(rig.chain(4 * 16, 19)) == 16);
  CHECK(rig.store->stats().chunks_evicted > 0);
  CHECK(static_cast<uint64_t>(ask(rig, "SELECT sum(bytes) FROM chunk")) ==
        rig.store->stats().bytes);
  // A chain longer than the budget: its beginning stays.
  const Chain longest = rig.chain(4 * 100, 99);
  rig.now_ms += 100'000'000;
  REQUIRE(rig.save(longest).ok());
  CHECK(rig.restore(longest) >= 32);
}

TEST_CASE("an owner cannot evict another's chains") {
  StoreRig rig;
  rig.budget_bytes = 64u << 17;
  rig.reopen();
  const Chain quiet = rig.chain(4 * 24, 1, "uid:1");
  REQUIRE(rig.save(quiet).ok());
  for (uint32_t seed = 2; seed < 30; ++seed) {
    rig.now_ms += 1'000'000;
    REQUIRE(rig.save(rig.chain(4 * 16, seed, "uid:2")).ok());
  }
  CHECK(rig.restore(quiet) == 24);
}

TEST_CASE("pinned chunks stay until their time is over") {
  StoreRig rig;
  rig.budget_bytes = 32u << 17;
  rig.reopen();
  const Chain pinned = rig.chain(4 * 16, 1);
  REQUIRE(rig.save(pinned).ok());
  meddle(rig, "UPDATE chunk SET pinned_until = " + std::to_string(rig.now_ms / 1000 + 1000));
  for (uint32_t seed = 2; seed < 8; ++seed) {
    rig.now_ms += 100'000;
    REQUIRE(rig.save(rig.chain(4 * 16, seed)).ok());
  }
  CHECK(rig.restore(pinned) == 16);
  for (uint32_t seed = 8; seed < 20; ++seed) {
    rig.now_ms += 10'000'000;
    REQUIRE(rig.save(rig.chain(4 * 16, seed)).ok());
  }
  CHECK(rig.restore(pinned) == 0);
}

TEST_CASE("a pin covers a chain from its root, and an owner's pins are bounded") {
  StoreRig rig;
  rig.budget_bytes = 48u << 17;
  rig.owner_pinned_bytes = 16u << 17;
  rig.reopen();
  const Chain first = rig.chain(4 * 16, 1);
  const Chain second = rig.chain(4 * 16, 2);
  REQUIRE(rig.save(first).ok());
  REQUIRE(rig.save(second).ok());
  const Result<int32_t> pinned = rig.store->pin(rig.store->name(first), 10, 1'000'000);
  REQUIRE(pinned.ok());
  CHECK(*pinned == 10);  // the chunk that holds the last of them stays whole
  CHECK(ask(rig, "SELECT count(*) FROM chunk WHERE pinned_until > 0") == 2);
  CHECK(*rig.store->pin(rig.store->name(second), 16, 1'000'000) == 0);
  CHECK(rig.store->stats().pins_refused == 1);
  // Again, for a shorter time: nothing is lost.
  CHECK(*rig.store->pin(rig.store->name(first), 16, 10) == 16);
  CHECK(ask(rig, "SELECT min(pinned_until) FROM chunk WHERE pinned_until > 0") ==
        rig.now_ms / 1000 + 1'000'000);
  for (uint32_t seed = 3; seed < 12; ++seed) {
    rig.now_ms += 10'000;
    REQUIRE(rig.save(rig.chain(4 * 16, seed)).ok());
  }
  CHECK(rig.restore(first) == 16);
  CHECK(rig.restore(second) == 0);
}

TEST_CASE("an owner's quota is kept, whatever room there is") {
  StoreRig rig;
  rig.owner_budget_bytes = 32u << 17;
  rig.reopen();
  const Chain other = rig.chain(4 * 24, 1, "uid:2");
  REQUIRE(rig.save(other).ok());
  for (uint32_t seed = 2; seed < 12; ++seed) {
    rig.now_ms += 10'000;
    REQUIRE(rig.save(rig.chain(4 * 16, seed)).ok());
    CHECK(ask(rig, "SELECT sum(bytes) FROM chunk WHERE owner = 'uid:1'") <= 32 << 17);
  }
  CHECK(rig.restore(other) == 24);
  CHECK(rig.restore(rig.chain(4 * 16, 11)) == 16);
}

TEST_CASE("files are private") {
  StoreRig rig;
  REQUIRE(rig.save(rig.chain(4 * 10, 1)).ok());
  int seen = 0;
  for (const auto& entry : fs::directory_iterator(rig.folder.path())) {
    CAPTURE(entry.path().string());
    CHECK((entry.status().permissions() & fs::perms::mask) ==
          (fs::perms::owner_read | fs::perms::owner_write));
    ++seen;
  }
  CHECK(seen >= 3);
}

TEST_CASE("a writer killed at any moment leaves a store that opens and serves nothing wrong") {
  StoreRig rig;
  rig.budget_bytes = 64u << 17;  // evicts too
  rig.reopen();
  rig.store.reset();
  int restored = 0;
  kill_writers(
      [&](const std::function<void()>& report_saved) {
        rig.reopen();
        for (uint32_t seed = 0;; ++seed) {
          if (!rig.save(rig.chain(4 * (5 + static_cast<int32_t>(seed) % 20), seed % 7)).ok()) {
            rig.now_ms += 1'000;
          } else {
            report_saved();
          }
          rig.store->tick();
        }
      },
      [&] {
        rig.reopen();
        CHECK(rig.store->stats().state == StoreState::kWriting);  // the dead writer's lease is free
        for (uint32_t seed = 0; seed < 7; ++seed) restored += rig.restore(rig.chain(4 * 24, seed));
        CHECK(rig.store->stats().chunks_refused == 0);
        rig.store.reset();
      });
  CHECK(restored > 0);
}

}  // namespace hearth::tests
