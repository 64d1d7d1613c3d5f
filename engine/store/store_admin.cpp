#include "engine/store/store_admin.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <thread>

#include "engine/store/store_schema.h"
#include "kernels/base/clock.h"
#include "kernels/base/numbers.h"

namespace hearth::engine {
namespace fs = std::filesystem;
namespace {

/// Between tries to empty the log.
constexpr std::chrono::milliseconds kRetry{20};

Result<int64_t> number_from(std::string_view text, const char* what, int64_t least = 1) {
  int64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem == std::errc{} && end == text.data() + text.size() && value >= least) {
    return value;
  }
  return Error::corrupt(fmt::format("{}: met '{}', want a number", what, text));
}

/// Of a row's column `present`.
bool is_state(std::span<const std::byte> present, const KvLayout& layout) {
  const size_t at = layout.state_group * sizeof(uint64_t);
  if (layout.state_group < 0 || at + sizeof(uint64_t) > present.size()) return false;
  uint64_t mask = 0;
  std::memcpy(&mask, present.data() + at, sizeof mask);
  return mask != 0;
}

Result<KvLayout> layout_from(Database& database) {
  KvLayout layout;
  const auto value = [&](const char* key) {
    return database.query_text(fmt::format("SELECT value FROM meta WHERE key = '{}'", key));
  };
  HEARTH_ASSIGN_OR_RETURN(layout.model, value("model"));
  HEARTH_ASSIGN_OR_RETURN(layout.identity, value("identity"));
  HEARTH_ASSIGN_OR_RETURN(const std::string block_size, value("block_size"));
  HEARTH_ASSIGN_OR_RETURN(const int64_t tokens, number_from(block_size, "block_size"));
  constexpr int64_t kMaxBlockSize = 1 << 16;
  if (tokens > kMaxBlockSize) {
    return Error::corrupt(fmt::format("block_size: {}", tokens));
  }
  layout.block_size = narrow<int32_t>(tokens);
  HEARTH_ASSIGN_OR_RETURN(const std::string bytes, value("block_bytes"));
  for (size_t from = 0; from <= bytes.size();) {
    const size_t to = std::min(bytes.find(',', from), bytes.size());
    HEARTH_ASSIGN_OR_RETURN(
        const int64_t group,
        number_from(std::string_view(bytes).substr(from, to - from), "block_bytes"));
    constexpr int64_t kMaxBlockBytes = int64_t{1} << 32;
    if (group > kMaxBlockBytes || layout.block_bytes.size() == 64) {
      return Error::corrupt(fmt::format("block_bytes: {}", bytes));
    }
    layout.block_bytes.push_back(group);
    from = to + 1;
  }
  // Files of models without states may lack it.
  if (const Result<std::string> state = value("state_group"); state.ok() && *state != "-1") {
    HEARTH_ASSIGN_OR_RETURN(const int64_t group, number_from(*state, "state_group", 0));
    if (std::cmp_greater_equal(group, layout.block_bytes.size())) {
      return Error::corrupt(fmt::format("state_group: {}", group));
    }
    layout.state_group = narrow<int32_t>(group);
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string hash, value("layout"));
  if (hash != to_hex(layout.hash())) {
    return Error::corrupt("the layout does not agree with its hash");
  }
  return layout;
}

}  // namespace

Result<std::vector<fs::path>> StoreAdmin::files(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code problem;
  fs::directory_iterator at(folder, problem);
  if (problem == std::errc::no_such_file_or_directory) return out;
  for (; !problem && at != fs::directory_iterator(); at.increment(problem)) {
    if (at->path().extension() == ".db") out.push_back(at->path());
  }
  if (problem) {
    std::string text = fmt::format("{}: {}", folder.string(), problem.message());
    if (problem == std::errc::permission_denied) return Error::forbidden(std::move(text));
    return Error::io(std::move(text));
  }
  std::ranges::sort(out);
  return out;
}

Result<StoreAdmin> StoreAdmin::open(const fs::path& file, int busy_ms) {
  StoreAdmin out;
  out.file_ = file;
  out.busy_ms_ = busy_ms;
  if (!fs::is_regular_file(fs::symlink_status(file))) {
    return Error::not_found(fmt::format("{}: no such file", file.string()));
  }
  HEARTH_ASSIGN_OR_RETURN(out.database_, Database::open(file));
  out.database_.set_busy_timeout(busy_ms);
  HEARTH_TRY(out.database_.execute("PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON"));
  HEARTH_ASSIGN_OR_RETURN(const int64_t version,
                          out.database_.query_integer("PRAGMA user_version"));
  HEARTH_ASSIGN_OR_RETURN(const int64_t application,
                          out.database_.query_integer("PRAGMA application_id"));
  if (application != kStoreApplicationId || version != kStoreFormat) {
    return Error::corrupt(
        fmt::format("{}: no database of prefixes of this version", file.filename().string()));
  }
  HEARTH_ASSIGN_OR_RETURN(out.layout_, layout_from(out.database_));
  return out;
}

uint64_t StoreAdmin::file_bytes() const {
  uint64_t bytes = 0;
  for (const char* suffix : {"", "-wal", "-shm"}) {
    std::error_code problem;
    const uintmax_t size = fs::file_size(file_.string() + suffix, problem);
    if (!problem) bytes += size;
  }
  return bytes;
}

Result<std::vector<StoredEntry>> StoreAdmin::entries() {
  HEARTH_ASSIGN_OR_RETURN(
      Statement rows,
      database_.prepare("SELECT id, owner, root, parent, last, idx, num_blocks, bytes, used, hits,"
                        " pinned_until, present FROM chunk ORDER BY idx, id"));
  std::vector<StoredEntry> out;
  while (true) {
    HEARTH_ASSIGN_OR_RETURN(const bool more, rows.step());
    if (!more) return out;
    StoredEntry entry;
    entry.row = rows.integer(0);
    entry.owner = rows.text(1);
    entry.root = hash_from(rows.blob(2));
    entry.parent = hash_from(rows.blob(3));
    entry.last = hash_from(rows.blob(4));
    // For display only: impossible values are shown as small ones.
    entry.index = narrow<int32_t>(std::clamp<int64_t>(rows.integer(5), 0, 1 << 24));
    entry.num_blocks =
        narrow<int32_t>(std::clamp<int64_t>(rows.integer(6), 0, layout_.chunk_blocks()));
    entry.bytes = std::max<int64_t>(0, rows.integer(7));
    entry.used_s = rows.integer(8);
    entry.hits = rows.integer(9);
    entry.pinned_until_s = rows.integer(10);
    entry.state = is_state(rows.blob(11), layout_);
    out.push_back(std::move(entry));
  }
}

Result<void> StoreAdmin::remove(const std::vector<int64_t>& rows, bool wipe) {
  HEARTH_TRY(database_.execute(wipe ? "PRAGMA secure_delete=ON" : "PRAGMA secure_delete=OFF"));
  {
    HEARTH_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(database_));
    HEARTH_ASSIGN_OR_RETURN(Statement erase, database_.prepare("DELETE FROM chunk WHERE id = ?"));
    for (const int64_t row : rows) HEARTH_TRY(erase.bind(0, row).run());
    HEARTH_TRY(transaction.commit());
  }
  // Rows deleted earlier without wiping may remain in free pages, which are wiped, too.
  if (wipe) return compact();
  return {};
}

Result<uint64_t> StoreAdmin::pin(const std::vector<int64_t>& rows, int64_t until_s, int64_t now_s,
                                 uint64_t owner_pinned_bytes) {
  HEARTH_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(database_));
  uint64_t left_out = 0;
  if (until_s == 0) {
    HEARTH_ASSIGN_OR_RETURN(Statement unpin,
                            database_.prepare("UPDATE chunk SET pinned_until = 0 WHERE id = ?"));
    for (const int64_t row : rows) HEARTH_TRY(unpin.bind(0, row).run());
  } else {
    StoreContents contents(
        {.budget_bytes = 0, .owner_budget_bytes = 0, .owner_pinned_bytes = owner_pinned_bytes});
    HEARTH_TRY(contents.open(database_));
    for (const int64_t row : rows) {
      HEARTH_ASSIGN_OR_RETURN(const bool fits, contents.pin(row, until_s, now_s));
      if (!fits) ++left_out;
    }
  }
  HEARTH_TRY(transaction.commit());
  return left_out;
}

Result<std::vector<int32_t>> StoreAdmin::first_tokens(int64_t row, size_t most) {
  HEARTH_ASSIGN_OR_RETURN(Statement tokens,
                          database_.prepare("SELECT tokens FROM chunk WHERE id = ?"));
  HEARTH_ASSIGN_OR_RETURN(const bool there, tokens.bind(0, row).step());
  std::vector<int32_t> out;
  if (!there) return out;
  const std::span<const std::byte> bytes = tokens.blob(0);
  out.resize(std::min(most, bytes.size() / sizeof(int32_t)));
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), out.size() * sizeof(int32_t));
  return out;
}

Result<void> StoreAdmin::compact() {
  HEARTH_TRY(database_.execute("VACUUM"));
  // While another process writes its own checkpoint, as a worker does now and then, SQLite reports
  // that it is busy at once: its busy timeout applies to readers and writers alone.
  const SteadyClock clock;
  const int64_t end_us = clock.now_us() + int64_t{busy_ms_} * 1000;
  while (true) {
    HEARTH_ASSIGN_OR_RETURN(const int64_t busy,
                            database_.query_integer("PRAGMA wal_checkpoint(TRUNCATE)"));
    if (busy == 0) return {};
    if (clock.now_us() >= end_us) break;
    std::this_thread::sleep_for(kRetry);
  }
  return Error::busy(
      fmt::format("{}: another process has used it for {} ms, so its log could not be emptied; "
                  "try again in a moment",
                  file_.filename().string(), busy_ms_));
}

Result<VerifyReport> StoreAdmin::verify() {
  HEARTH_ASSIGN_OR_RETURN(const std::string check, database_.query_text("PRAGMA quick_check(1)"));
  if (check != "ok") {
    return Error::corrupt(fmt::format("{}: {}", file_.filename().string(), check));
  }
  HEARTH_ASSIGN_OR_RETURN(const StoreKey key, StoreKey::open(file_.parent_path() / "key"));
  VerifyReport report;
  std::vector<int64_t> bad;
  HEARTH_ASSIGN_OR_RETURN(const std::vector<StoredEntry> all, entries());
  HEARTH_ASSIGN_OR_RETURN(Statement by_id, database_.prepare("SELECT " + std::string(kRowColumns) +
                                                             " FROM chunk WHERE id = ?"));
  const Hash128 layout_hash = layout_.hash();
  for (const StoredEntry& entry : all) {
    HEARTH_ASSIGN_OR_RETURN(const bool there, by_id.bind(0, entry.row).step());
    if (!there) continue;  // evicted meanwhile
    Result<StoredRow> stored = row_from(by_id, layout_);
    by_id.reset();
    bool good = stored.ok();
    if (good) {
      ChunkData data = ChunkData::of_size(stored->data_bytes);
      Result<Blob> blob = Blob::open(database_, "chunk", "data", entry.row);
      good = blob.ok() && blob->size() == data.size && blob->read(0, data.span()).ok() &&
             key.check(layout_hash, stored->row, data.span()) == stored->checksum;
    }
    ++(good ? report.good : report.bad);
    if (!good) bad.push_back(entry.row);
  }
  if (!bad.empty()) HEARTH_TRY(remove(bad, false));
  return report;
}

}  // namespace hearth::engine
