#pragma once
// Block chains in one SQLite database per model and KV layout. Owned by one thread; any number of
// processes may have the same file open, and only the one with the lease writes.
//
// A damaged row counts as a miss and is deleted and counted. An error of the file turns the store
// off for a while (a second, doubling up to half a minute); a file that is damaged or not a
// database is replaced by an empty one. Only time is lost.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/store/block_store.h"
#include "engine/store/published_rows.h"
#include "engine/store/store_contents.h"
#include "engine/store/store_key.h"
#include "engine/store/writer_lease.h"
#include "kernels/database/sqlite.h"

namespace hearth::engine {

struct SqliteStoreConfig {
  std::filesystem::path folder;              ///< exists, private to this user
  uint64_t budget_bytes = 8ull << 30;        ///< of KV; the least valuable chunks are evicted first
  uint64_t owner_budget_bytes = 0;           ///< of KV of one owner; 0: as much as there is
  uint64_t owner_pinned_bytes = 2ull << 30;  ///< of it pinned, at most
  uint64_t min_free_bytes = 1ull << 30;      ///< of the file system; nothing is written below
  /// Milliseconds since 1970.
  std::function<int64_t()> now_ms;
  const char* vfs = nullptr;  ///< for tests
};

class SqliteStore final : public BlockStore {
 public:
  /// Opens no file yet; the first tick or use does.
  SqliteStore(SqliteStoreConfig config, KvLayout layout);
  ~SqliteStore() override;

  NamedChain name(Chain chain) const override;
  Result<std::vector<FoundChunk>> find(const NamedChain& chain, int32_t first_block,
                                       int32_t max_blocks) override;
  Result<ChunkData> load(const NamedChain& chain, FoundChunk* found) override;
  Result<void> save(std::span<const ChunkToSave> chunks) override;
  Result<bool> touch(const NamedChain& chain, int32_t index, int32_t num_blocks,
                     ChunkKind kind) override;
  Result<int32_t> pin(const NamedChain& chain, int32_t num_blocks, int64_t seconds) override;
  std::vector<PinnedChunk> pinned(size_t limit) override;
  void recycle(ChunkData spare) override;
  std::vector<CacheEvent> take_events() override { return published_.take_events(); }
  void tick() override;
  StoreStats stats() const override;

  const std::filesystem::path& file() const { return file_; }

 private:
  struct Open;

  bool ensure_open();
  Result<void> open();
  void close();
  void fail(const char* doing, const Error& error);
  void note(const char* doing, const Error& error);
  void refuse(int64_t row, std::string_view problem);

  Result<bool> take_lease();
  /// Adds what is stored of the chunk to `out`; returns the most blocks of KV in one row.
  Result<int32_t> find_in_chunk(const NamedChain& chain, int32_t index, int32_t max_blocks,
                                std::vector<FoundChunk>& out);
  Result<void> save_one(const ChunkToSave& chunk);
  /// Reads a row's bytes; returns the checksum that they should have.
  Result<Hash128> read_data(const ChunkRow& row, std::span<std::byte> out);
  ChunkData take_spare(size_t size);
  Result<void> write_touched();
  Result<bool> room_on_disk();

  const SqliteStoreConfig config_;
  const KvLayout layout_;
  const Hash128 layout_hash_;
  const std::filesystem::path file_;
  const bool states_alone_;  ///< the model has no keys and values
  std::optional<StoreKey> key_;
  std::unique_ptr<Open> open_;  ///< null: closed

  StoreStats stats_;
  PublishedRows published_;
  StoreContents contents_;
  WriterLease lease_;
  std::vector<ChunkData> spare_;
  std::vector<int64_t> touched_;  ///< rows read since they were last written down
  int64_t data_version_ = 0;
  int64_t retry_at_ms_ = 0;        ///< closed until then
  int64_t write_retry_at_ms_ = 0;  ///< open, but nothing is written until then
  int64_t retry_delay_ms_ = 0;
  int64_t logged_ms_ = 0;
};

}  // namespace hearth::engine
