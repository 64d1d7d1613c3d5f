// A database of prefixes with damaged rows: restored from, written to, looked after.
// What is served must be what was saved; all else is a miss.
//
//   first byte, lowest bit 0: edits of the file: page, offset (2 bytes), xor (0: the file ends
//   here)
//                          1: edits of rows: column, row, kind of value, value
//
// Seeds: fuzz_seeds.

#include <sqlite3.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/store/sqlite_store.h"
#include "engine/store/store_admin.h"
#include "engine/store/stored_row.h"
#include "input.h"
#include "kernels/base/check.h"
#include "kernels/base/log.h"
#include "tests/temp_dir.h"

namespace hearth::fuzz {
namespace fs = std::filesystem;
namespace {

using namespace engine;

constexpr int32_t kBlocks = 100;
constexpr size_t kPage = 32768;
constexpr const char* kColumns[] = {"id",           "owner",   "root",   "parent",       "first",
                                    "last",         "prefix",  "idx",    "num_blocks",   "bytes",
                                    "created",      "used",    "hits",   "recompute_us", "value",
                                    "pinned_until", "present", "tokens", "checksum",     "data"};
constexpr int64_t kExtremes[] = {
    0, 1, -1, 63, 64, 65, 100, INT32_MAX, INT64_C(1) << 32, INT64_MAX, INT64_MIN};

/// Two groups, the second sliding; chunks of 64 blocks.
KvLayout layout_of_model() {
  KvLayout layout;
  layout.model = "fuzzed";
  layout.identity = "identity";
  layout.block_size = 4;
  layout.block_bytes = {64, 32};
  return layout;
}

std::byte byte_of(int32_t block, size_t group) {
  return static_cast<std::byte>(block * 2 + static_cast<int32_t>(group));
}

class Rig {
 public:
  Rig() {
    init_logging("store_fuzz", LogLevel::kError);
    chain_.owner = "uid:1";
    chain_.root = scope_hash("root");
    for (int32_t i = 0; i < kBlocks * layout_.block_size; ++i) chain_.tokens.push_back(i % 97);
    {
      const std::unique_ptr<SqliteStore> store = open();
      HEARTH_CHECK(save(*store).ok());
      store->tick();
      HEARTH_CHECK(serve(*store) == kBlocks);
      file_ = store->file();
    }
    std::ifstream in(file_, std::ios::binary);
    image_.assign(std::istreambuf_iterator<char>(in), {});
    HEARTH_CHECK(image_.size() > kPage);
  }
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  void run(Input in) {
    std::string image = image_;
    const bool rows = in.flag();
    if (!rows) edit_image(in, image);
    remove_store_file(file_);
    std::ofstream(file_, std::ios::binary)
        .write(image.data(), static_cast<std::streamsize>(image.size()));
    if (rows) edit_rows(in);
    if (Result<StoreAdmin> admin = StoreAdmin::open(file_, 0); admin.ok()) {
      (void)admin->entries();
      if (in.flag()) (void)admin->verify();
    }
    const std::unique_ptr<SqliteStore> store = open();
    (void)serve(*store);
    const NamedChain named = store->name(chain_);
    (void)store->pin(named, kBlocks, 10);
    (void)store->touch(named, 0, layout_.chunk_blocks(), ChunkKind::kKv);
    (void)save(*store);
    store->tick();
    (void)serve(*store);
  }

 private:
  std::unique_ptr<SqliteStore> open() const {
    SqliteStoreConfig config;
    config.folder = folder_.path();
    config.min_free_bytes = 0;
    config.budget_bytes = 1 << 20;
    config.now_ms = [] { return int64_t{1'700'000'000'000}; };
    auto store = std::make_unique<SqliteStore>(std::move(config), layout_);
    store->tick();
    return store;
  }

  Result<void> save(SqliteStore& store) const {
    const NamedChain named = store.name(chain_);
    std::vector<ChunkShape> shapes;
    std::vector<std::vector<std::byte>> data;
    std::vector<ChunkToSave> chunks;
    for (int32_t first = 0; first < kBlocks; first += layout_.chunk_blocks()) {
      const int32_t count = std::min(layout_.chunk_blocks(), kBlocks - first);
      // The sliding group has only the last blocks.
      shapes.push_back({first / layout_.chunk_blocks(),
                        count,
                        {low_bits(count), low_bits(count) & ~low_bits(count - 3)}});
      data.emplace_back();
      for (int32_t i = 0; i < count; ++i) {
        for (int32_t group = 0; group < layout_.num_groups(); ++group) {
          if (!shapes.back().has(group, i)) continue;
          data.back().insert(data.back().end(), static_cast<size_t>(layout_.block_bytes[group]),
                             byte_of(first + i, group));
        }
      }
    }
    for (size_t i = 0; i < shapes.size(); ++i) chunks.push_back({&named, &shapes[i], data[i]});
    return store.save(chunks);
  }

  /// Number of blocks served; ends the process if one is not what was saved.
  int32_t serve(SqliteStore& store) const {
    const NamedChain named = store.name(chain_);
    Result<std::vector<FoundChunk>> found = store.find(named, 0, kBlocks);
    if (!found.ok()) return 0;
    int32_t blocks = 0;
    for (FoundChunk& chunk : *found) {
      const int32_t usable = chunk.shape.num_blocks;
      const Result<ChunkData> data = store.load(named, &chunk);
      if (!data.ok()) continue;
      HEARTH_CHECK(usable <= chunk.shape.num_blocks &&
                   chunk.shape.data_bytes(layout_) == data->size);
      const std::byte* at = data->bytes.get();
      for (int32_t i = 0; i < usable; ++i) {
        for (int32_t group = 0; group < layout_.num_groups(); ++group) {
          if (!chunk.shape.has(group, i)) continue;
          const std::byte want = byte_of(chunk.shape.index * layout_.chunk_blocks() + i, group);
          const auto bytes = static_cast<size_t>(layout_.block_bytes[group]);
          HEARTH_CHECK(std::all_of(at, at + bytes, [&](std::byte b) { return b == want; }));
          at += bytes;
        }
      }
      blocks += usable;
    }
    return blocks;
  }

  static void edit_image(Input& in, std::string& image) {
    constexpr int kMostEdits = 16;
    for (int edit = 0; edit < kMostEdits && !in.rest().empty(); ++edit) {
      const auto page = static_cast<size_t>(in.byte()) % (image.size() / kPage + 1);
      const size_t at = page * kPage + static_cast<size_t>(in.number(0, kPage - 1));
      const uint8_t flip = in.byte();
      if (at >= image.size()) continue;
      if (flip == 0) {
        image.resize(at);
        return;
      }
      image[at] = static_cast<char>(image[at] ^ static_cast<char>(flip));
    }
  }

  void edit_rows(Input& in) const {
    sqlite3* raw = nullptr;
    ::sqlite3_open(file_.c_str(), &raw);
    const std::unique_ptr<sqlite3, int (*)(sqlite3*)> database(raw, ::sqlite3_close);
    constexpr int kMostEdits = 8;
    for (int edit = 0; edit < kMostEdits && !in.rest().empty(); ++edit) {
      const std::string sql = std::string("UPDATE chunk SET ") +
                              in.pick(std::span<const char* const>(kColumns)) +
                              " = ?1 WHERE id = ?2";
      sqlite3_stmt* statement = nullptr;
      ::sqlite3_prepare_v2(raw, sql.c_str(), -1, &statement, nullptr);
      ::sqlite3_bind_int(statement, 2, in.number(1, 2));
      switch (in.number(0, 3)) {
        case 0:
          ::sqlite3_bind_int64(statement, 1, in.pick(std::span<const int64_t>(kExtremes)));
          break;
        case 1: ::sqlite3_bind_int64(statement, 1, in.number(0, 65535)); break;
        case 2: {
          const std::string text = in.text(64);
          ::sqlite3_bind_text(statement, 1, text.c_str(), static_cast<int>(text.size()),
                              SQLITE_TRANSIENT);
          break;
        }
        default: {
          const std::string bytes = in.text(1024);
          ::sqlite3_bind_blob(statement, 1, bytes.c_str(), static_cast<int>(bytes.size()),
                              SQLITE_TRANSIENT);
        }
      }
      ::sqlite3_step(statement);
      ::sqlite3_finalize(statement);
    }
  }

  tests::TempDir folder_;
  fs::path file_;
  const KvLayout layout_ = layout_of_model();
  Chain chain_;
  std::string image_;
};

}  // namespace
}  // namespace hearth::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static hearth::fuzz::Rig rig;
  rig.run(hearth::fuzz::Input(data, size));
  return 0;
}
