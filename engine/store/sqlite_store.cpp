#include "engine/store/sqlite_store.h"

#include <fmt/core.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <utility>

#include "engine/store/store_schema.h"
#include "engine/store/stored_row.h"
#include "kernels/base/log.h"
#include "kernels/base/numbers.h"
#include "kernels/database/bus_guard.h"

namespace hearth::engine {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kRetryMs = 1'000;
constexpr int64_t kRetryMaxMs = 30'000;
constexpr int64_t kLogEveryMs = 10'000;
constexpr int kBusyMs = 250;
constexpr int64_t kMappedBytes = int64_t{2}
                                 << 30;  // SQLite's limit is about this; the rest is read
/// The newest data is read first when it is restored: these bytes are read ahead of page faults.
constexpr int64_t kReadyBytes = 128 << 20;
constexpr size_t kMaxTouched = 4096;
/// Rows examined that begin like a chain and continue differently.
constexpr int kMaxSiblings = 8;
/// Buffers kept for the next chunks, as page faults cost as much as reading.
constexpr size_t kMaxSpareChunks = 8;
/// Read and hashed in pieces of this size, so that hashing finds them in the core's cache.
constexpr size_t kReadPiece = 128 << 10;

template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

}  // namespace

// ---- Opening and failing --------------------------------------------------------------------

struct SqliteStore::Open {
  Database database;
  // Finalized before the connection closes.
  Statement by_first, by_last, by_id, insert, data_version;
};

SqliteStore::SqliteStore(SqliteStoreConfig config, KvLayout layout)
    : config_(std::move(config)),
      layout_(std::move(layout)),
      layout_hash_(layout_.hash()),
      file_(config_.folder / store_file_name(layout_)),
      states_alone_(layout_.state_group >= 0 && layout_.num_groups() == 1),
      published_(CacheTier::kDatabase, layout_),
      contents_({config_.budget_bytes, config_.owner_budget_bytes, config_.owner_pinned_bytes},
                &published_) {
  stats_.state = StoreState::kDegraded;
  stats_.budget_bytes = config_.budget_bytes;
}

SqliteStore::~SqliteStore() {
  if (open_ == nullptr) return;
  BusGuard::turn_on();  // the thread may differ from the one that used it before
  (void)write_touched();
  lease_.give_back();
  close();
}

void SqliteStore::close() {
  lease_.close();
  contents_.close();
  open_.reset();
  BusGuard::clear();  // the mapping is gone
}

bool SqliteStore::ensure_open() {
  if (open_ != nullptr) return true;
  if (config_.now_ms() < retry_at_ms_) return false;
  if (Result<void> opened = open(); !opened.ok()) {
    fail("open", opened.error());
    if (opened.error().code != ErrorCode::kCorrupt) return false;
    // fail() has removed the damaged file: once more, with an empty one.
    if (opened = open(); !opened.ok()) {
      fail("open", opened.error());
      return false;
    }
  }
  return true;
}

Result<void> SqliteStore::open() {
  if (!key_) {
    HEARTH_ASSIGN_OR_RETURN(key_, StoreKey::open(config_.folder / "key"));
  }
  std::error_code ignored;
  const fs::file_type type = fs::symlink_status(file_, ignored).type();
  if (type != fs::file_type::regular && type != fs::file_type::not_found) {
    HEARTH_TRY(put_aside(file_));  // for example if it is a directory
  }
  HEARTH_ASSIGN_OR_RETURN(Database database, Database::open(file_, config_.vfs));
  auto opened = std::make_unique<Open>();
  opened->database = std::move(database);
  Database& db = opened->database;
  db.set_busy_timeout(kBusyMs);
  HEARTH_TRY(set_up(db, layout_, file_.filename().string()));
  HEARTH_TRY(db.map(kMappedBytes, kReadyBytes));

  const std::string columns(kRowColumns);
  const auto prepare = [&db](Statement& out, const std::string& sql) -> Result<void> {
    HEARTH_ASSIGN_OR_RETURN(out, db.prepare(sql));
    return {};
  };
  HEARTH_TRY(prepare(opened->by_first, "SELECT " + columns +
                                           " FROM chunk WHERE first = ?"
                                           " ORDER BY num_blocks DESC LIMIT " +
                                           std::to_string(kMaxSiblings)));
  HEARTH_TRY(prepare(opened->by_last, "SELECT " + columns + " FROM chunk WHERE last = ? LIMIT " +
                                          std::to_string(kMaxSiblings)));
  HEARTH_TRY(prepare(opened->by_id, "SELECT " + columns + " FROM chunk WHERE id = ?"));
  HEARTH_TRY(prepare(opened->insert,
                     "INSERT INTO chunk(owner, root, parent, first, last, prefix, idx, num_blocks,"
                     " bytes, created, used, hits, recompute_us, value, present, tokens, checksum,"
                     " data) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"));
  HEARTH_TRY(prepare(opened->data_version, "PRAGMA data_version"));
  open_ = std::move(opened);
  Result<void> counted = contents_.open(open_->database);
  if (counted.ok()) counted = lease_.open(open_->database);
  if (!counted.ok()) {
    close();
    return counted;
  }
  stats_.state = StoreState::kReading;
  if (Result<bool> lease = take_lease(); !lease.ok() && lease.error().code != ErrorCode::kBusy) {
    // Reading may still work.
    stats_.last_error = "lease: " + lease.error().message;
  }
  return {};
}

void SqliteStore::note(const char* doing, const Error& error) {
  stats_.last_error = fmt::format("{}: {}", doing, error.message);
  const int64_t now = config_.now_ms();
  if (logged_ms_ != 0 && now - logged_ms_ < kLogEveryMs) return;
  logged_ms_ = now;
  log_warn("prefix_store", "doing={} code={} error=\"{}\"", doing, hearth::name(error.code),
           error.message);
}

void SqliteStore::fail(const char* doing, const Error& error) {
  note(doing, error);
  // Another process is writing, which is not an error.
  if (error.code == ErrorCode::kBusy && open_ != nullptr) return;
  const int64_t now = config_.now_ms();
  retry_delay_ms_ = std::clamp(retry_delay_ms_ * 2, kRetryMs, kRetryMaxMs);
  lease_.lose();
  touched_.clear();
  ++stats_.epoch;
  stats_.state = StoreState::kDegraded;
  if (open_ != nullptr &&
      (error.code == ErrorCode::kTooLarge || error.code == ErrorCode::kForbidden)) {
    // The disk is full or read-only: existing rows can still be read.
    write_retry_at_ms_ = now + retry_delay_ms_;
    return;
  }
  close();
  retry_at_ms_ = now + retry_delay_ms_;
  if (error.code != ErrorCode::kCorrupt) return;
  remove_store_file(file_);
  contents_.lost();
  // An empty file is worth an attempt at once, but not more than one.
  if (retry_delay_ms_ == kRetryMs) retry_at_ms_ = now;
}

void SqliteStore::refuse(int64_t row, std::string_view problem) {
  ++stats_.chunks_refused;
  ++stats_.epoch;
  note("verify", Error::corrupt(fmt::format("row {}: {}", row, problem)));
  if (!lease_.held()) return;
  if (Result<void> gone = contents_.remove(row); !gone.ok()) fail("delete", gone.error());
}

// ---- The lease -----------------------------------------------------------------------------

Result<bool> SqliteStore::take_lease() {
  const int64_t now = config_.now_ms();
  if (now < write_retry_at_ms_) return false;
  HEARTH_ASSIGN_OR_RETURN(const bool mine, lease_.take(now));
  stats_.state = mine ? StoreState::kWriting : StoreState::kReading;
  return mine;
}

// ---- Reading --------------------------------------------------------------------------------

NamedChain SqliteStore::name(Chain chain) const {
  NamedChain out = name_chain(std::move(chain), layout_.block_size);
  if (key_) out.prefixes = key_->prefixes(layout_, out.chain);
  return out;
}

Result<std::vector<FoundChunk>> SqliteStore::find(const NamedChain& chain, int32_t first_block,
                                                  int32_t max_blocks) {
  std::vector<FoundChunk> out;
  // Without prefixes the chain was named before there was a key: a miss.
  if (!ensure_open() || chain.prefixes.empty()) return out;
  const int32_t chunk_blocks = layout_.chunk_blocks();
  max_blocks = std::min(max_blocks, chain.num_blocks());
  for (int32_t index = first_block / chunk_blocks; index * chunk_blocks < max_blocks; ++index) {
    const Result<int32_t> longest = find_in_chunk(chain, index, max_blocks, out);
    if (!longest.ok()) {
      fail("find", longest.error());
      break;
    }
    // Without blocks of other groups, states may be far from each other.
    if (*longest < chunk_blocks && !states_alone_) break;
  }
  return out;
}

Result<int32_t> SqliteStore::find_in_chunk(const NamedChain& chain, int32_t index,
                                           int32_t max_blocks, std::vector<FoundChunk>& out) {
  const int32_t chunk_blocks = layout_.chunk_blocks();
  const int32_t first = index * chunk_blocks;
  const size_t begin = out.size();
  int32_t longest = 0;
  const auto take = [&](Statement& statement) -> Result<void> {
    while (true) {
      HEARTH_ASSIGN_OR_RETURN(const bool more, statement.step());
      if (!more) return {};
      const Result<StoredRow> stored = row_from(statement, layout_);
      // load() will find the damage, report it and delete the row.
      if (!stored.ok()) continue;
      const ChunkRow& row = stored->row;
      if (row.shape.index != index || row.parent != chain.names[first] ||
          row.prefix != chain.prefixes[index]) {
        continue;
      }
      if (std::any_of(out.begin() + begin, out.end(),
                      [&](const FoundChunk& found) { return found.row == row.id; })) {
        continue;
      }
      const int32_t common = common_blocks(row, chain, layout_, max_blocks);
      if (common == 0) continue;
      FoundChunk found;
      found.row = row.id;
      found.shape = row.shape;
      found.shape.num_blocks = common;
      for (uint64_t& mask : found.shape.present) mask &= low_bits(common);
      found.bytes = stored->data_bytes;
      if (row.shape.is_state(layout_)) {
        if (common < row.shape.num_blocks) continue;
      } else {
        longest = std::max(longest, common);
      }
      out.push_back(std::move(found));
    }
  };
  const int32_t end = std::min(first + chunk_blocks, max_blocks);
  // Rows that are part of the chain, the longest first; then those that begin like it. If many
  // share a beginning, a search by the beginning alone could miss the first kind.
  for (int32_t last = std::min(first + chunk_blocks, chain.num_blocks()); last > first; --last) {
    open_->by_last.bind(0, hash_bytes(chain.names[last]));
    HEARTH_TRY(take(open_->by_last));
    if (out.size() > begin && layout_.state_group < 0) break;
  }
  if (longest < end - first || layout_.num_groups() > 1) {
    open_->by_first.bind(0, hash_bytes(chain.names[first + 1]));
    HEARTH_TRY(take(open_->by_first));
  }
  std::stable_sort(out.begin() + begin, out.end(), [](const FoundChunk& a, const FoundChunk& b) {
    return a.shape.num_blocks > b.shape.num_blocks;
  });
  // A state can be used once the blocks before it are there.
  std::stable_partition(out.begin() + begin, out.end(),
                        [this](const FoundChunk& chunk) { return !chunk.shape.is_state(layout_); });
  return longest;
}

Result<ChunkData> SqliteStore::load(const NamedChain& chain, FoundChunk* found) {
  const Error miss = Error::not_found("the chunk is gone");
  if (!ensure_open() || !key_) return miss;
  Result<bool> there = open_->by_id.bind(0, found->row).step();
  if (!there.ok()) {
    fail("load", there.error());
    return there.take_error();
  }
  if (!*there) return miss;
  Result<StoredRow> stored = row_from(open_->by_id, layout_);
  open_->by_id.reset();
  if (!stored.ok()) {
    refuse(found->row, stored.error().message);
    return stored.take_error();
  }
  const ChunkRow& row = stored->row;
  const size_t index = found->shape.index;
  const auto first = index * layout_.chunk_blocks();
  // The row may differ from the one that was found, because ids are reused.
  if (row.shape.index != found->shape.index || index >= chain.prefixes.size() ||
      row.root != chain.chain.root || row.parent != chain.names[first] ||
      row.prefix != chain.prefixes[index] ||
      common_blocks(row, chain, layout_, chain.num_blocks()) < found->shape.num_blocks) {
    return miss;
  }
  ChunkData data = take_spare(stored->data_bytes);
  Result<Hash128> checksum = read_data(row, data.span());
  if (!checksum.ok()) {
    if (checksum.error().code != ErrorCode::kNotFound) fail("load", checksum.error());
    return checksum.take_error();
  }
  if (*checksum != stored->checksum) {
    const Error wrong = Error::corrupt("checksum differs");
    refuse(row.id, wrong.message);
    return wrong;
  }
  // Of a row with more blocks than were found, the chain does not name the last ones.
  if (found->shape.num_blocks == row.shape.num_blocks) published_.added(row.id, chain, row.shape);
  found->shape = row.shape;
  ++stats_.chunks_loaded;
  touched_.push_back(row.id);
  return data;
}

Result<Hash128> SqliteStore::read_data(const ChunkRow& row, std::span<std::byte> out) {
  HEARTH_ASSIGN_OR_RETURN(Blob blob, Blob::open(open_->database, "chunk", "data", row.id));
  if (blob.size() != out.size()) {
    return Error::corrupt(
        fmt::format("{} bytes in row {}, want {}", blob.size(), row.id, out.size()));
  }
  StoreKey::Check check = key_->begin_check(layout_hash_, row, out.size());
  for (size_t at = 0; at < out.size(); at += kReadPiece) {
    const std::span<std::byte> piece = out.subspan(at, std::min(kReadPiece, out.size() - at));
    HEARTH_TRY(blob.read(at, piece));
    check.add(piece);
  }
  return check.digest();
}

ChunkData SqliteStore::take_spare(size_t size) {
  while (!spare_.empty()) {
    ChunkData spare = std::move(spare_.back());
    spare_.pop_back();
    if (spare.capacity < size) continue;
    spare.size = size;
    return spare;
  }
  return ChunkData::of_size(size);
}

void SqliteStore::recycle(ChunkData spare) {
  if (spare.bytes != nullptr && spare_.size() < kMaxSpareChunks) spare_.push_back(std::move(spare));
}

// ---- Writing --------------------------------------------------------------------------------

Result<bool> SqliteStore::room_on_disk() {
  struct statvfs disk {};
  if (::statvfs(config_.folder.c_str(), &disk) != 0) return true;
  return disk.f_bavail * disk.f_frsize >= config_.min_free_bytes;
}

Result<void> SqliteStore::save(std::span<const ChunkToSave> chunks) {
  const auto drop = [&](const char* doing, Error error) -> Result<void> {
    stats_.chunks_dropped += chunks.size();
    ++stats_.epoch;
    if (doing != nullptr) fail(doing, error);
    return error;
  };
  if (!ensure_open()) return drop(nullptr, Error::unavailable(stats_.last_error));
  HEARTH_ASSIGN_OR_RETURN(const bool room, room_on_disk());
  if (!room) {
    stats_.last_error = "save: the disk is nearly full";
    return drop(nullptr, Error::too_large(stats_.last_error));
  }
  Result<bool> lease = take_lease();
  if (!lease.ok()) return drop("lease", lease.take_error());
  if (!*lease) return drop(nullptr, Error::forbidden("nothing may be written now"));

  const StoreCounts before = contents_.begin();
  const uint64_t saved_before = stats_.chunks_saved;
  const auto written = [&]() -> Result<void> {
    HEARTH_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(open_->database));
    // In the same transaction as the rows, so that a writer whose lease has lapsed notices it.
    HEARTH_ASSIGN_OR_RETURN(const bool mine, lease_.renew(config_.now_ms()));
    if (!mine) {
      stats_.state = StoreState::kReading;
      return Error::busy("the lease was taken over");
    }
    for (const ChunkToSave& chunk : chunks) HEARTH_TRY(save_one(chunk));
    HEARTH_TRY(contents_.evict(config_.now_ms() / 1000));
    return transaction.commit();
  }();
  if (!written.ok()) {
    contents_.roll_back(before);
    stats_.chunks_saved = saved_before;
    return drop("save", written.error());
  }
  contents_.commit();
  lease_.renewed(config_.now_ms());
  retry_delay_ms_ = 0;
  return {};
}

Result<void> SqliteStore::save_one(const ChunkToSave& chunk) {
  const NamedChain& chain = *chunk.chain;
  const ChunkShape& shape = *chunk.shape;
  const size_t chunk_blocks = layout_.chunk_blocks();
  const size_t first = shape.index * chunk_blocks;
  const size_t last = first + shape.num_blocks;
  const size_t block_size = layout_.block_size;
  // Named before there was a key, or the caller's mistake: not stored.
  if (last >= chain.names.size() || std::cmp_greater_equal(shape.index, chain.prefixes.size())) {
    ++stats_.chunks_dropped;
    return {};
  }
  std::vector<FoundChunk> there;
  HEARTH_TRY(find_in_chunk(chain, shape.index, narrow<int32_t>(last), there));
  for (const FoundChunk& found : there) {
    if (found.shape.num_blocks < shape.num_blocks) continue;
    bool holds = true;
    for (size_t group = 0; group < shape.present.size(); ++group) {
      holds = holds && (shape.present[group] & ~found.shape.present[group]) == 0;
    }
    if (holds) return contents_.touch(found.row, config_.now_ms() / 1000);
  }
  // Rows that are part of the new one are removed; their uses are added to it.
  std::vector<int64_t> covered;
  int64_t hits = 0;
  for (size_t end = last; end > first; --end) {
    Statement& by_last = open_->by_last.bind(0, hash_bytes(chain.names[end]));
    while (true) {
      HEARTH_ASSIGN_OR_RETURN(const bool more, by_last.step());
      if (!more) break;
      const Result<StoredRow> stored = row_from(by_last, layout_);
      if (!stored.ok() || stored->row.shape.index != shape.index) continue;
      const std::vector<uint64_t>& present = stored->row.shape.present;
      bool held = true;
      for (size_t group = 0; group < present.size(); ++group) {
        held = held && (present[group] & ~shape.present[group]) == 0;
      }
      if (!held) continue;
      covered.push_back(stored->row.id);
      hits = std::max(hits, contents_.hits(stored->row.id));
    }
  }
  for (const int64_t row : covered) HEARTH_TRY(contents_.remove(row));

  ChunkRow row;
  row.owner = chain.chain.owner;
  row.root = chain.chain.root;
  row.parent = chain.names[first];
  row.first = chain.names[shape.is_state(layout_) ? last : first + 1];
  row.last = chain.names[last];
  row.prefix = chain.prefixes[shape.index];
  row.shape = shape;
  const auto tokens =
      std::span(chain.chain.tokens).subspan(first * block_size, (last - first) * block_size);
  row.tokens.assign(tokens.begin(), tokens.end());
  const Hash128 checksum = key_->check(layout_hash_, row, chunk.data);
  const int64_t now_s = config_.now_ms() / 1000;
  RankedChunk ranked;
  ranked.owner = row.owner;
  ranked.bytes = chunk.data.size();
  ranked.index = shape.index;
  ranked.used_s = now_s;
  ranked.hits = hits;
  ranked.recompute_us = chunk.recompute_us;
  ranked.value = contents_.value_now(row.owner, hits, chunk.recompute_us, ranked.bytes);
  ranked.parent = row.parent;
  ranked.last = row.last;
  HEARTH_TRY(open_->insert.bind(0, row.owner)
                 .bind(1, hash_bytes(row.root))
                 .bind(2, hash_bytes(row.parent))
                 .bind(3, hash_bytes(row.first))
                 .bind(4, hash_bytes(row.last))
                 .bind(5, hash_bytes(row.prefix))
                 .bind(6, int64_t{shape.index})
                 .bind(7, int64_t{shape.num_blocks})
                 .bind(8, std::ssize(chunk.data))
                 .bind(9, now_s)
                 .bind(10, now_s)
                 .bind(11, hits)
                 .bind(12, ranked.recompute_us)
                 .bind(13, ranked.value)
                 .bind(14, bytes_of(row.shape.present))
                 .bind(15, bytes_of(row.tokens))
                 .bind(16, hash_bytes(checksum))
                 .bind(17, chunk.data)
                 .run());
  ++stats_.chunks_saved;
  ranked.row = open_->database.last_insert_id();
  contents_.added(std::move(ranked), chain, shape);
  return {};
}

Result<bool> SqliteStore::touch(const NamedChain& chain, int32_t index, int32_t num_blocks,
                                ChunkKind kind) {
  if (!ensure_open()) return Error::unavailable(stats_.last_error);
  const size_t last = int64_t{index} * layout_.chunk_blocks() + num_blocks;
  if (last >= chain.names.size()) return false;
  if (std::cmp_greater_equal(index, chain.prefixes.size())) return false;
  std::vector<FoundChunk> there;
  Result<int32_t> looked = find_in_chunk(chain, index, narrow<int32_t>(last), there);
  if (!looked.ok()) {
    fail("touch", looked.error());
    return looked.take_error();
  }
  const auto at = std::ranges::find_if(there, [&](const FoundChunk& found) {
    return found.shape.kind(layout_) == kind && found.shape.num_blocks == num_blocks;
  });
  if (at == there.end()) {
    ++stats_.epoch;  // evicted: it may be offered again
    return false;
  }
  if (touched_.size() < kMaxTouched) touched_.push_back(at->row);
  return true;
}

Result<int32_t> SqliteStore::pin(const NamedChain& chain, int32_t num_blocks, int64_t seconds) {
  if (!ensure_open()) return Error::unavailable(stats_.last_error);
  Result<bool> lease = take_lease();
  if (!lease.ok()) return lease.take_error();
  if (!*lease) return Error::forbidden("nothing may be written now");
  int32_t pinned = 0;
  const auto work = [&]() -> Result<void> {
    HEARTH_ASSIGN_OR_RETURN(const std::vector<FoundChunk> found, find(chain, 0, num_blocks));
    // The lookup may have closed the database.
    if (open_ == nullptr) return Error::unavailable(stats_.last_error);
    HEARTH_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(open_->database));
    const int64_t now_s = config_.now_ms() / 1000;
    for (const FoundChunk& chunk : found) {
      HEARTH_ASSIGN_OR_RETURN(const bool fits, contents_.pin(chunk.row, now_s + seconds, now_s));
      if (!fits) {
        ++stats_.pins_refused;
        break;  // later blocks are useless without it
      }
      pinned =
          std::max(pinned, chunk.shape.index * layout_.chunk_blocks() + chunk.shape.num_blocks);
    }
    return transaction.commit();
  }();
  if (work.ok()) return pinned;
  if (open_ != nullptr) fail("pin", work.error());
  return work.error();
}

std::vector<PinnedChunk> SqliteStore::pinned(size_t limit) {
  if (!ensure_open()) return {};
  const auto look = [&]() -> Result<std::vector<PinnedChunk>> {
    // The inner query uses only the index, because rows are large.
    HEARTH_ASSIGN_OR_RETURN(
        Statement rows,
        open_->database.prepare("SELECT last, num_blocks FROM chunk WHERE id IN (SELECT id FROM"
                                " chunk INDEXED BY chunk_value WHERE pinned_until > ? LIMIT ?)"));
    rows.bind(0, config_.now_ms() / 1000).bind(1, static_cast<int64_t>(limit));
    std::vector<PinnedChunk> out;
    while (true) {
      HEARTH_ASSIGN_OR_RETURN(const bool more, rows.step());
      if (!more) return out;
      const int64_t blocks = std::clamp<int64_t>(rows.integer(1), 0, layout_.chunk_blocks());
      out.push_back({hash_from(rows.blob(0)), narrow<int32_t>(blocks)});
    }
  };
  Result<std::vector<PinnedChunk>> found = look();
  if (found.ok()) return std::move(*found);
  fail("list", found.error());
  return {};
}

Result<void> SqliteStore::write_touched() {
  if (touched_.empty() || !lease_.held()) {
    touched_.clear();
    return {};
  }
  HEARTH_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(open_->database));
  const int64_t now_s = config_.now_ms() / 1000;
  for (const int64_t row : std::exchange(touched_, {})) HEARTH_TRY(contents_.touch(row, now_s));
  return transaction.commit();
}

void SqliteStore::tick() {
  if (!ensure_open()) return;
  const auto work = [&]() -> Result<void> {
    HEARTH_ASSIGN_OR_RETURN(const bool there, open_->data_version.step());
    const int64_t version = there ? open_->data_version.integer(0) : 0;
    open_->data_version.reset();
    if (version != data_version_) {
      // Another connection has written, so our counts and saved chunks may be outdated.
      if (data_version_ != 0) {
        ++stats_.epoch;
        HEARTH_TRY(contents_.recount());
      }
      data_version_ = version;
    }
    if (lease_.due(config_.now_ms())) {
      HEARTH_ASSIGN_OR_RETURN([[maybe_unused]] const bool mine, take_lease());
    }
    HEARTH_TRY(write_touched());
    if (lease_.held()) {
      // Passive: waits for no reader.
      HEARTH_ASSIGN_OR_RETURN(Statement checkpoint,
                              open_->database.prepare("PRAGMA wal_checkpoint(PASSIVE)"));
      HEARTH_TRY(checkpoint.run());
    }
    return {};
  }();
  if (!work.ok()) fail("tick", work.error());
}

StoreStats SqliteStore::stats() const {
  StoreStats out = stats_;
  out.entries = contents_.counts().entries;
  out.bytes = contents_.counts().bytes;
  out.chunks_evicted = contents_.counts().evicted;
  return out;
}

}  // namespace hearth::engine
