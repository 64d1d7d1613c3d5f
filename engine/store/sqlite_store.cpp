#include "engine/store/sqlite_store.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "kernels/base/log.h"

namespace hearth::engine {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kRetryMs = 1'000;
constexpr int64_t kRetryMaxMs = 30'000;
constexpr int64_t kLogEveryMs = 10'000;
constexpr int64_t kLeaseRenewMs = 2'000;
constexpr int64_t kLeaseLapseMs = 15'000;
constexpr int kBusyMs = 250;
constexpr size_t kMaxTouched = 4096;
/// Rows looked at that begin like a chain and go on otherwise.
constexpr int kMaxSiblings = 8;
/// A row that was read so often before counts as used so much later.
constexpr int64_t kHitWorthS = 3600;
constexpr int64_t kMaxHitsCounted = 24;
/// Eviction makes room in bulk: this share of the budget at once.
constexpr uint64_t kEvictShare = 32;
/// Log pages after which a checkpoint does not wait for an idle moment: 64 MiB.
constexpr int kCheckpointPages = 2048;

constexpr const char* kPragmas =
    "PRAGMA page_size=32768; PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
    "PRAGMA secure_delete=OFF; PRAGMA auto_vacuum=NONE; PRAGMA cache_size=-8192;"
    "PRAGMA wal_autocheckpoint=0; PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON;"
    "PRAGMA temp_store=MEMORY;";

constexpr const char* kSchema =
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;"
    "CREATE TABLE chunk(id INTEGER PRIMARY KEY, owner TEXT NOT NULL, root BLOB NOT NULL,"
    " parent BLOB NOT NULL, first BLOB NOT NULL, last BLOB NOT NULL, prefix BLOB NOT NULL,"
    " idx INTEGER NOT NULL, num_blocks INTEGER NOT NULL, bytes INTEGER NOT NULL,"
    " created INTEGER NOT NULL, used INTEGER NOT NULL, hits INTEGER NOT NULL DEFAULT 0,"
    " pinned_until INTEGER NOT NULL DEFAULT 0, present BLOB NOT NULL, tokens BLOB NOT NULL,"
    " checksum BLOB NOT NULL, data BLOB NOT NULL) STRICT;"
    "CREATE INDEX chunk_first ON chunk(first);"
    "CREATE INDEX chunk_last ON chunk(last);"
    "CREATE INDEX chunk_parent ON chunk(parent);"
    "CREATE INDEX chunk_value ON chunk(owner, used, hits, idx, pinned_until, bytes, last);"
    "CREATE TABLE lease(id INTEGER PRIMARY KEY CHECK(id = 1), token TEXT NOT NULL,"
    " pid INTEGER NOT NULL, boot TEXT NOT NULL, heartbeat_ms INTEGER NOT NULL) STRICT;";

std::string boot_id() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(in, id);
  return id;
}

std::string random_token() {
  Hash128 token;
  // Where there is no randomness, the process id tells two writers apart.
  if (::getrandom(&token, sizeof token, 0) != sizeof token)
    token.low = static_cast<uint64_t>(::getpid());
  return to_hex(token);
}

bool process_is_gone(int64_t pid) {
  return ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH;
}

template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

int32_t common_blocks(const ChunkRow& row, const NamedChain& chain, const KvLayout& layout,
                      int32_t max_blocks) {
  const int32_t first = row.shape.index * layout.chunk_blocks();
  const int32_t count = std::min(row.shape.num_blocks, max_blocks - first);
  const auto block_size = static_cast<size_t>(layout.block_size);
  int32_t common = 0;
  for (; common < count; ++common) {
    const auto mine = std::span(chain.chain.tokens)
                          .subspan(static_cast<size_t>(first + common) * block_size, block_size);
    const auto theirs =
        std::span(row.tokens).subspan(static_cast<size_t>(common) * block_size, block_size);
    if (!std::ranges::equal(mine, theirs)) break;
  }
  return common;
}

}  // namespace

// ---- Rows -----------------------------------------------------------------------------------

std::string to_hex(const Hash128& hash) {
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

std::span<const std::byte> hash_bytes(const Hash128& hash) {
  static_assert(sizeof(Hash128) == 16);
  return std::as_bytes(std::span(&hash, 1));
}

Hash128 hash_from(std::span<const std::byte> bytes) {
  Hash128 out;
  if (bytes.size() == sizeof out) std::memcpy(&out, bytes.data(), sizeof out);
  return out;
}

Result<StoredRow> row_from(const Statement& statement, const KvLayout& layout) {
  StoredRow out;
  ChunkRow& row = out.row;
  row.id = statement.integer(0);
  row.owner = statement.text(1);
  row.root = hash_from(statement.blob(2));
  row.parent = hash_from(statement.blob(3));
  row.first = hash_from(statement.blob(4));
  row.last = hash_from(statement.blob(5));
  row.prefix = hash_from(statement.blob(6));
  const int64_t index = statement.integer(7);
  const int64_t num_blocks = statement.integer(8);
  const std::span<const std::byte> present = statement.blob(9);
  const std::span<const std::byte> tokens = statement.blob(10);
  out.checksum = hash_from(statement.blob(11));
  out.data_bytes = static_cast<uint64_t>(statement.integer(12));

  const auto bad = [&](const std::string& what) {
    return Error{ErrorCode::kCorrupt, fmt::format("row {}: {}", row.id, what), ""};
  };
  if (num_blocks < 1 || num_blocks > layout.chunk_blocks()) {
    return bad(fmt::format("{} blocks, want 1 to {}", num_blocks, layout.chunk_blocks()));
  }
  constexpr int64_t kMaxIndex = 1 << 24;
  if (index < 0 || index > kMaxIndex) return bad(fmt::format("chunk {}", index));
  row.shape.index = static_cast<int32_t>(index);
  row.shape.num_blocks = static_cast<int32_t>(num_blocks);
  if (present.size() != layout.num_groups() * sizeof(uint64_t)) {
    return bad(fmt::format("{} bytes of masks, want {}", present.size(),
                           layout.num_groups() * sizeof(uint64_t)));
  }
  row.shape.present.resize(layout.num_groups());
  std::memcpy(row.shape.present.data(), present.data(), present.size());
  for (const uint64_t mask : row.shape.present) {
    if ((mask & ~low_bits(row.shape.num_blocks)) != 0) return bad("a mask beyond its blocks");
  }
  const size_t num_tokens =
      static_cast<size_t>(num_blocks) * static_cast<size_t>(layout.block_size);
  if (tokens.size() != num_tokens * sizeof(int32_t)) {
    return bad(
        fmt::format("{} bytes of tokens, want {}", tokens.size(), num_tokens * sizeof(int32_t)));
  }
  row.tokens.resize(num_tokens);
  std::memcpy(row.tokens.data(), tokens.data(), tokens.size());
  const uint64_t wanted = row.shape.data_bytes(layout);
  if (out.data_bytes != wanted) {
    return bad(fmt::format("{} bytes of KV, want {}", out.data_bytes, wanted));
  }
  return out;
}

std::string store_file_name(const KvLayout& layout) {
  std::string name;
  for (const char c : layout.model.substr(0, 64)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || (c == '.' && !name.empty());
    name += plain ? c : '_';
  }
  return fmt::format("{}-{:016x}.db", name.empty() ? "model" : name, layout.hash().low);
}

void remove_store_file(const fs::path& file) {
  std::error_code ignored;
  for (const char* suffix : {"", "-wal", "-shm", "-journal"}) {
    fs::remove(fs::path(file.string() + suffix), ignored);
  }
}

// ---- Opening and failing --------------------------------------------------------------------

struct SqliteStore::Open {
  Database database;
  // Finalized before the connection closes.
  Statement by_first, by_last, by_id, insert, erase, touch, lease_renew, victims, has_child,
      data_version;
};

SqliteStore::SqliteStore(SqliteStoreConfig config, KvLayout layout)
    : config_(std::move(config)),
      layout_(std::move(layout)),
      layout_hash_(layout_.hash()),
      file_(config_.folder / store_file_name(layout_)),
      lease_token_(random_token()) {
  stats_.state = StoreState::kDegraded;
  stats_.budget_bytes = config_.budget_bytes;
}

SqliteStore::~SqliteStore() {
  if (open_ == nullptr) return;
  (void)write_touched();
  if (has_lease_) {
    if (Result<Statement> gone = open_->database.prepare("DELETE FROM lease WHERE token = ?");
        gone.ok()) {
      (void)gone->bind(0, lease_token_).run();
    }
  }
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
  HEARTH_ASSIGN_OR_RETURN(Database database, Database::open(file_, config_.vfs));
  auto opened = std::make_unique<Open>();
  opened->database = std::move(database);
  Database& db = opened->database;
  db.set_busy_timeout(kBusyMs);
  HEARTH_TRY(db.execute(kPragmas));
  HEARTH_TRY(make_schema(*opened));

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
                     " bytes, created, used, present, tokens, checksum, data)"
                     " VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"));
  HEARTH_TRY(prepare(opened->erase, "DELETE FROM chunk WHERE id = ? RETURNING owner, bytes"));
  HEARTH_TRY(
      prepare(opened->touch, "UPDATE chunk SET used = max(used, ?), hits = hits + 1 WHERE id = ?"));
  HEARTH_TRY(prepare(opened->lease_renew, "UPDATE lease SET heartbeat_ms = ? WHERE token = ?"));
  HEARTH_TRY(prepare(opened->victims,
                     "SELECT id, last FROM chunk WHERE owner = ? AND pinned_until <= ? ORDER BY"
                     " used + min(hits, ?) * ?, idx DESC LIMIT 64"));
  HEARTH_TRY(prepare(opened->has_child, "SELECT 1 FROM chunk WHERE parent = ? LIMIT 1"));
  HEARTH_TRY(prepare(opened->data_version, "PRAGMA data_version"));
  open_ = std::move(opened);
  if (Result<void> counted = refresh_counts(); !counted.ok()) {
    open_.reset();
    return counted;
  }
  stats_.state = StoreState::kReading;
  has_lease_ = false;
  lease_renewed_ms_ = 0;
  if (Result<bool> lease = take_lease(); !lease.ok() && lease.error().code != ErrorCode::kBusy) {
    // Reading may work all the same.
    stats_.last_error = "lease: " + lease.error().message;
  }
  return {};
}

Result<void> SqliteStore::make_schema(Open& opened) {
  Database& db = opened.database;
  HEARTH_ASSIGN_OR_RETURN(int64_t application, db.query_integer("PRAGMA application_id"));
  if (application == 0) {
    HEARTH_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(db));
    // Another process may have made it meanwhile.
    HEARTH_ASSIGN_OR_RETURN(application, db.query_integer("PRAGMA application_id"));
    if (application == 0) {
      HEARTH_TRY(db.execute(kSchema));
      HEARTH_ASSIGN_OR_RETURN(Statement meta, db.prepare("INSERT INTO meta VALUES(?, ?)"));
      const std::pair<const char*, std::string> entries[] = {
          {"layout", to_hex(layout_hash_)},
          {"model", layout_.model},
          {"identity", layout_.identity},
          {"block_size", std::to_string(layout_.block_size)},
          {"block_bytes", fmt::format("{}", fmt::join(layout_.block_bytes, ","))}};
      for (const auto& [key, value] : entries) {
        HEARTH_TRY(meta.bind(0, std::string_view(key)).bind(1, value).run());
      }
      HEARTH_TRY(db.execute(fmt::format("PRAGMA user_version={}; PRAGMA application_id={};",
                                        kStoreFormat, kStoreApplicationId)));
    }
    HEARTH_TRY(transaction.commit());
  }
  HEARTH_ASSIGN_OR_RETURN(application, db.query_integer("PRAGMA application_id"));
  HEARTH_ASSIGN_OR_RETURN(const int64_t version, db.query_integer("PRAGMA user_version"));
  if (application != kStoreApplicationId || version != kStoreFormat) {
    return Error{ErrorCode::kCorrupt,
                 fmt::format("{}: application {:x} format {}, want {:x} format {}",
                             file_.filename().string(), application, version, kStoreApplicationId,
                             kStoreFormat),
                 ""};
  }
  const Result<std::string> layout = db.query_text("SELECT value FROM meta WHERE key = 'layout'");
  if (!layout.ok() && layout.error().code != ErrorCode::kNotFound &&
      layout.error().code != ErrorCode::kIo) {
    return layout.error();
  }
  if (!layout.ok() || *layout != to_hex(layout_hash_)) {
    return Error{ErrorCode::kCorrupt, file_.filename().string() + ": of another model or layout",
                 ""};
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
  // Somebody else writes for a moment: nothing is wrong.
  if (error.code == ErrorCode::kBusy && open_ != nullptr) return;
  const int64_t now = config_.now_ms();
  retry_delay_ms_ = std::clamp(retry_delay_ms_ * 2, kRetryMs, kRetryMaxMs);
  has_lease_ = false;
  touched_.clear();
  ++stats_.epoch;
  stats_.state = StoreState::kDegraded;
  if (open_ != nullptr &&
      (error.code == ErrorCode::kTooLarge || error.code == ErrorCode::kForbidden)) {
    // The disk is full, or read-only: what is there can still be read.
    write_retry_at_ms_ = now + retry_delay_ms_;
    return;
  }
  open_.reset();
  retry_at_ms_ = now + retry_delay_ms_;
  if (error.code != ErrorCode::kCorrupt) return;
  remove_store_file(file_);
  stats_.entries = stats_.bytes = 0;
  bytes_of_owner_.clear();
  // An empty file is worth an attempt at once, but not more than one.
  if (retry_delay_ms_ == kRetryMs) retry_at_ms_ = now;
}

void SqliteStore::refuse(int64_t row, std::string_view problem) {
  ++stats_.chunks_refused;
  ++stats_.epoch;
  note("verify", {ErrorCode::kCorrupt, fmt::format("row {}: {}", row, problem), ""});
  if (!has_lease_) return;
  if (Result<void> gone = forget_row(row); !gone.ok()) fail("delete", gone.error());
}

// ---- Who writes -----------------------------------------------------------------------------

Result<bool> SqliteStore::take_lease() {
  const int64_t now = config_.now_ms();
  if (now < write_retry_at_ms_) return false;
  Database& db = open_->database;
  if (has_lease_ && now - lease_renewed_ms_ < kLeaseRenewMs) return true;
  HEARTH_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(db));
  HEARTH_TRY(open_->lease_renew.bind(0, now).bind(1, lease_token_).run());
  bool mine = db.changes() > 0;
  if (!mine) {
    HEARTH_ASSIGN_OR_RETURN(Statement holder,
                            db.prepare("SELECT pid, boot, heartbeat_ms FROM lease"));
    HEARTH_ASSIGN_OR_RETURN(const bool held, holder.step());
    const std::string boot = boot_id();
    bool lapsed = true;
    if (held) {
      const int64_t beat = holder.integer(2);
      // A beat from the future is of a clock that was set back.
      lapsed = holder.text(1) != boot || process_is_gone(holder.integer(0)) ||
               now - beat > kLeaseLapseMs || beat - now > kLeaseLapseMs;
      holder.reset();
    }
    if (lapsed) {
      HEARTH_ASSIGN_OR_RETURN(Statement take,
                              db.prepare("INSERT OR REPLACE INTO lease VALUES(1, ?, ?, ?, ?)"));
      HEARTH_TRY(take.bind(0, lease_token_)
                     .bind(1, static_cast<int64_t>(::getpid()))
                     .bind(2, boot)
                     .bind(3, now)
                     .run());
      mine = true;
    }
  }
  HEARTH_TRY(transaction.commit());
  lease_renewed_ms_ = now;
  has_lease_ = mine;
  stats_.state = mine ? StoreState::kWriting : StoreState::kReading;
  return mine;
}

// ---- Reading --------------------------------------------------------------------------------

NamedChain SqliteStore::name(Chain chain) const {
  NamedChain out;
  const auto block_size = static_cast<size_t>(layout_.block_size);
  const size_t num_blocks = chain.tokens.size() / block_size;
  chain.tokens.resize(num_blocks * block_size);
  out.names.reserve(num_blocks + 1);
  out.names.push_back(chain.root);
  for (size_t i = 0; i < num_blocks; ++i) {
    out.names.push_back(
        chain_hash(out.names.back(), std::span(chain.tokens).subspan(i * block_size, block_size)));
  }
  if (key_) out.prefixes = key_->prefixes(layout_, chain);
  out.chain = std::move(chain);
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
    int32_t longest = 0;
    if (Result<void> looked = find_in_chunk(chain, index, max_blocks, out, &longest);
        !looked.ok()) {
      fail("find", looked.error());
      break;
    }
    if (longest < chunk_blocks) break;
  }
  return out;
}

Result<void> SqliteStore::find_in_chunk(const NamedChain& chain, int32_t index, int32_t max_blocks,
                                        std::vector<FoundChunk>& out, int32_t* longest) {
  const int32_t chunk_blocks = layout_.chunk_blocks();
  const int32_t first = index * chunk_blocks;
  const size_t begin = out.size();
  const auto take = [&](Statement& statement) -> Result<void> {
    while (true) {
      HEARTH_ASSIGN_OR_RETURN(const bool more, statement.step());
      if (!more) return {};
      const Result<StoredRow> stored = row_from(statement, layout_);
      // load() would refuse it: it says so there, and deletes it.
      if (!stored.ok()) continue;
      const ChunkRow& row = stored->row;
      if (row.shape.index != index || row.parent != chain.names[static_cast<size_t>(first)] ||
          row.prefix != chain.prefixes[static_cast<size_t>(index)]) {
        continue;
      }
      if (std::any_of(out.begin() + static_cast<ptrdiff_t>(begin), out.end(),
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
      *longest = std::max(*longest, common);
      out.push_back(std::move(found));
    }
  };
  const int32_t end = std::min(first + chunk_blocks, max_blocks);
  // Rows that are a part of the chain, the longest first; then those that begin like it. Among many
  // that share a beginning, the first kind would not be found by that beginning.
  for (int32_t last = std::min(first + chunk_blocks, chain.num_blocks()); last > first; --last) {
    open_->by_last.bind(0, hash_bytes(chain.names[static_cast<size_t>(last)]));
    HEARTH_TRY(take(open_->by_last));
    if (out.size() > begin) break;
  }
  if (*longest < end - first || layout_.num_groups() > 1) {
    open_->by_first.bind(0, hash_bytes(chain.names[static_cast<size_t>(first) + 1]));
    HEARTH_TRY(take(open_->by_first));
  }
  std::stable_sort(out.begin() + static_cast<ptrdiff_t>(begin), out.end(),
                   [](const FoundChunk& a, const FoundChunk& b) {
                     return a.shape.num_blocks > b.shape.num_blocks;
                   });
  return {};
}

Result<ChunkData> SqliteStore::load(const NamedChain& chain, FoundChunk* found) {
  const Error miss{ErrorCode::kNotFound, "the chunk is gone", ""};
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
  const auto index = static_cast<size_t>(found->shape.index);
  const auto first = index * static_cast<size_t>(layout_.chunk_blocks());
  // The row may be another one than was found: ids are used again.
  if (row.shape.index != found->shape.index || index >= chain.prefixes.size() ||
      row.root != chain.chain.root || row.parent != chain.names[first] ||
      row.prefix != chain.prefixes[index] ||
      common_blocks(row, chain, layout_, chain.num_blocks()) < found->shape.num_blocks) {
    return miss;
  }
  ChunkData data = ChunkData::of_size(stored->data_bytes);
  if (Result<void> read = open_->database.read_blob("chunk", "data", row.id, data.span());
      !read.ok()) {
    if (read.error().code != ErrorCode::kNotFound) fail("load", read.error());
    return read.take_error();
  }
  if (key_->check(layout_hash_, row, data.span()) != stored->checksum) {
    const Error wrong{ErrorCode::kCorrupt, "checksum differs", ""};
    refuse(row.id, wrong.message);
    return wrong;
  }
  found->shape = row.shape;
  ++stats_.chunks_loaded;
  touched_.push_back(row.id);
  return data;
}

// ---- Writing --------------------------------------------------------------------------------

Result<bool> SqliteStore::room_on_disk() {
  struct statvfs disk {};
  if (::statvfs(config_.folder.c_str(), &disk) != 0) return true;
  return static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize >= config_.min_free_bytes;
}

Result<void> SqliteStore::save(std::span<const ChunkToSave> chunks) {
  const auto drop = [&](const char* doing, Error error) -> Result<void> {
    stats_.chunks_dropped += chunks.size();
    ++stats_.epoch;
    if (doing != nullptr) fail(doing, error);
    return error;
  };
  if (!ensure_open()) return drop(nullptr, {ErrorCode::kUnavailable, stats_.last_error, ""});
  HEARTH_ASSIGN_OR_RETURN(const bool room, room_on_disk());
  if (!room) {
    stats_.last_error = "save: the disk is nearly full";
    return drop(nullptr, {ErrorCode::kTooLarge, stats_.last_error, ""});
  }
  Result<bool> lease = take_lease();
  if (!lease.ok()) return drop("lease", lease.take_error());
  if (!*lease) return drop(nullptr, {ErrorCode::kForbidden, "nothing may be written now", ""});

  const StoreStats before = stats_;
  const auto owners_before = bytes_of_owner_;
  const auto written = [&]() -> Result<void> {
    HEARTH_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(open_->database));
    // In the same transaction as the rows: a writer that slept past its lease finds out here.
    HEARTH_TRY(open_->lease_renew.bind(0, config_.now_ms()).bind(1, lease_token_).run());
    if (open_->database.changes() == 0) {
      has_lease_ = false;
      stats_.state = StoreState::kReading;
      return Error{ErrorCode::kBusy, "the lease was taken over", ""};
    }
    for (const ChunkToSave& chunk : chunks) HEARTH_TRY(save_one(chunk));
    HEARTH_TRY(evict());
    return transaction.commit();
  }();
  if (!written.ok()) {
    stats_.entries = before.entries;
    stats_.bytes = before.bytes;
    stats_.chunks_saved = before.chunks_saved;
    stats_.chunks_evicted = before.chunks_evicted;
    bytes_of_owner_ = owners_before;
    return drop("save", written.error());
  }
  lease_renewed_ms_ = config_.now_ms();
  retry_delay_ms_ = 0;
  return {};
}

Result<void> SqliteStore::save_one(const ChunkToSave& chunk) {
  const NamedChain& chain = *chunk.chain;
  const ChunkShape& shape = *chunk.shape;
  const auto chunk_blocks = static_cast<size_t>(layout_.chunk_blocks());
  const size_t first = static_cast<size_t>(shape.index) * chunk_blocks;
  const size_t last = first + static_cast<size_t>(shape.num_blocks);
  const auto block_size = static_cast<size_t>(layout_.block_size);
  // Named before there was a key, or a caller's mistake: not kept.
  if (last >= chain.names.size() || static_cast<size_t>(shape.index) >= chain.prefixes.size()) {
    ++stats_.chunks_dropped;
    return {};
  }
  int32_t longest = 0;
  std::vector<FoundChunk> there;
  HEARTH_TRY(find_in_chunk(chain, shape.index, static_cast<int32_t>(last), there, &longest));
  for (const FoundChunk& found : there) {
    if (found.shape.num_blocks < shape.num_blocks) continue;
    bool holds = true;
    for (size_t group = 0; group < shape.present.size(); ++group) {
      holds = holds && (shape.present[group] & ~found.shape.present[group]) == 0;
    }
    if (holds) return open_->touch.bind(0, config_.now_ms() / 1000).bind(1, found.row).run();
  }
  // What is a part of the new one goes.
  std::vector<int64_t> covered;
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
      if (held) covered.push_back(stored->row.id);
    }
  }
  for (const int64_t row : covered) HEARTH_TRY(forget_row(row));

  ChunkRow row;
  row.owner = chain.chain.owner;
  row.root = chain.chain.root;
  row.parent = chain.names[first];
  row.first = chain.names[first + 1];
  row.last = chain.names[last];
  row.prefix = chain.prefixes[static_cast<size_t>(shape.index)];
  row.shape = shape;
  const auto tokens =
      std::span(chain.chain.tokens).subspan(first * block_size, (last - first) * block_size);
  row.tokens.assign(tokens.begin(), tokens.end());
  const Hash128 checksum = key_->check(layout_hash_, row, chunk.data);
  const int64_t now_s = config_.now_ms() / 1000;
  HEARTH_TRY(open_->insert.bind(0, row.owner)
                 .bind(1, hash_bytes(row.root))
                 .bind(2, hash_bytes(row.parent))
                 .bind(3, hash_bytes(row.first))
                 .bind(4, hash_bytes(row.last))
                 .bind(5, hash_bytes(row.prefix))
                 .bind(6, int64_t{shape.index})
                 .bind(7, int64_t{shape.num_blocks})
                 .bind(8, static_cast<int64_t>(chunk.data.size()))
                 .bind(9, now_s)
                 .bind(10, now_s)
                 .bind(11, bytes_of(row.shape.present))
                 .bind(12, bytes_of(row.tokens))
                 .bind(13, hash_bytes(checksum))
                 .bind(14, chunk.data)
                 .run());
  ++stats_.entries;
  ++stats_.chunks_saved;
  stats_.bytes += chunk.data.size();
  bytes_of_owner_[row.owner] += chunk.data.size();
  return {};
}

Result<void> SqliteStore::forget_row(int64_t id) {
  open_->erase.bind(0, id);
  HEARTH_ASSIGN_OR_RETURN(const bool was_there, open_->erase.step());
  if (!was_there) return {};
  const std::string owner = open_->erase.text(0);
  const auto bytes = static_cast<uint64_t>(std::max<int64_t>(0, open_->erase.integer(1)));
  HEARTH_TRY(open_->erase.run());
  stats_.entries -= std::min<uint64_t>(stats_.entries, 1);
  stats_.bytes -= std::min(stats_.bytes, bytes);
  uint64_t& of_owner = bytes_of_owner_[owner];
  of_owner -= std::min(of_owner, bytes);
  return {};
}

// The owner with the most bytes loses some, so that nobody can flush what another keeps while
// keeping more himself.
Result<void> SqliteStore::evict() {
  if (stats_.bytes <= config_.budget_bytes) return {};
  const uint64_t goal = config_.budget_bytes - config_.budget_bytes / kEvictShare;
  while (stats_.bytes > goal) {
    std::vector<std::pair<uint64_t, std::string>> owners;
    for (const auto& [owner, bytes] : bytes_of_owner_) {
      if (bytes > 0) owners.emplace_back(bytes, owner);
    }
    std::ranges::sort(owners, std::greater{});
    bool any = false;
    for (const auto& [bytes, owner] : owners) {
      HEARTH_ASSIGN_OR_RETURN(any, evict_of(owner, goal));
      if (any) break;
    }
    if (!any) return {};  // all pinned
  }
  return {};
}

// Least valuable first, but never a chunk that others continue: without it they would be lost.
Result<bool> SqliteStore::evict_of(const std::string& owner, uint64_t goal) {
  constexpr int kAtOnce = 8;  // then the owners are compared again
  const int64_t now_s = config_.now_ms() / 1000;
  std::vector<std::pair<int64_t, Hash128>> candidates;
  Statement& victims =
      open_->victims.bind(0, owner).bind(1, now_s).bind(2, kMaxHitsCounted).bind(3, kHitWorthS);
  while (true) {
    HEARTH_ASSIGN_OR_RETURN(const bool more, victims.step());
    if (!more) break;
    candidates.emplace_back(victims.integer(0), hash_from(victims.blob(1)));
  }
  int evicted = 0;
  for (const auto& [row, last] : candidates) {
    if (evicted == kAtOnce || (evicted > 0 && stats_.bytes <= goal)) break;
    HEARTH_ASSIGN_OR_RETURN(const bool continued,
                            open_->has_child.bind(0, hash_bytes(last)).step());
    open_->has_child.reset();
    if (continued) continue;
    HEARTH_TRY(forget_row(row));
    ++evicted;
  }
  if (evicted == 0 && !candidates.empty()) {
    // All of them are continued by what is used more: a long chain loses its beginning.
    HEARTH_TRY(forget_row(candidates.front().first));
    ++evicted;
  }
  stats_.chunks_evicted += static_cast<uint64_t>(evicted);
  return evicted > 0;
}

Result<bool> SqliteStore::touch(const NamedChain& chain, int32_t index, int32_t num_blocks) {
  if (!ensure_open()) return Error{ErrorCode::kUnavailable, stats_.last_error, ""};
  const auto last = static_cast<size_t>(index) * static_cast<size_t>(layout_.chunk_blocks()) +
                    static_cast<size_t>(num_blocks);
  if (last >= chain.names.size()) return false;
  if (static_cast<size_t>(index) >= chain.prefixes.size()) return false;
  int32_t longest = 0;
  std::vector<FoundChunk> there;
  Result<void> looked = find_in_chunk(chain, index, static_cast<int32_t>(last), there, &longest);
  if (!looked.ok()) {
    fail("touch", looked.error());
    return looked.take_error();
  }
  if (longest < num_blocks) {
    // Evicted: what it held may be offered again.
    ++stats_.epoch;
    return false;
  }
  if (touched_.size() < kMaxTouched) touched_.push_back(there.front().row);
  return true;
}

Result<void> SqliteStore::write_touched() {
  if (touched_.empty() || !has_lease_) {
    touched_.clear();
    return {};
  }
  HEARTH_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(open_->database));
  const int64_t now_s = config_.now_ms() / 1000;
  for (const int64_t row : std::exchange(touched_, {})) {
    HEARTH_TRY(open_->touch.bind(0, now_s).bind(1, row).run());
  }
  return transaction.commit();
}

Result<void> SqliteStore::refresh_counts() {
  HEARTH_ASSIGN_OR_RETURN(
      Statement counts,
      open_->database.prepare("SELECT owner, count(*), sum(bytes) FROM chunk GROUP BY owner"));
  stats_.entries = stats_.bytes = 0;
  bytes_of_owner_.clear();
  while (true) {
    HEARTH_ASSIGN_OR_RETURN(const bool more, counts.step());
    if (!more) break;
    const auto bytes = static_cast<uint64_t>(std::max<int64_t>(0, counts.integer(2)));
    stats_.entries += static_cast<uint64_t>(counts.integer(1));
    stats_.bytes += bytes;
    bytes_of_owner_[counts.text(0)] += bytes;
  }
  return {};
}

void SqliteStore::tick() {
  if (!ensure_open()) return;
  const auto work = [&]() -> Result<void> {
    HEARTH_ASSIGN_OR_RETURN(const bool there, open_->data_version.step());
    const int64_t version = there ? open_->data_version.integer(0) : 0;
    open_->data_version.reset();
    if (version != data_version_) {
      // Another connection has written: what we counted, and what we saved, may be gone.
      if (data_version_ != 0) {
        ++stats_.epoch;
        HEARTH_TRY(refresh_counts());
      }
      data_version_ = version;
    }
    if (config_.now_ms() - lease_renewed_ms_ >= kLeaseRenewMs) {
      HEARTH_ASSIGN_OR_RETURN([[maybe_unused]] const bool mine, take_lease());
    }
    HEARTH_TRY(write_touched());
    if (has_lease_) {
      // Passive: waits for no reader.
      HEARTH_ASSIGN_OR_RETURN(Statement checkpoint,
                              open_->database.prepare("PRAGMA wal_checkpoint(PASSIVE)"));
      HEARTH_TRY(checkpoint.run());
    }
    return {};
  }();
  if (!work.ok()) fail("tick", work.error());
}

StoreStats SqliteStore::stats() const { return stats_; }

}  // namespace hearth::engine
