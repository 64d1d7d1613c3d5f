#include "engine/store/store_schema.h"

#include <fmt/format.h>

#include <utility>

#include "engine/store/stored_row.h"

namespace hearth::engine {
namespace {

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
    " recompute_us REAL NOT NULL DEFAULT 0, value REAL NOT NULL DEFAULT 0,"
    " pinned_until INTEGER NOT NULL DEFAULT 0, present BLOB NOT NULL, tokens BLOB NOT NULL,"
    " checksum BLOB NOT NULL, data BLOB NOT NULL) STRICT;"
    "CREATE INDEX chunk_first ON chunk(first);"
    "CREATE INDEX chunk_last ON chunk(last);"
    "CREATE INDEX chunk_parent ON chunk(parent);"
    "CREATE INDEX chunk_value ON chunk(owner, value, recompute_us, used, hits, idx,"
    " pinned_until, bytes, parent, last);"
    "CREATE TABLE lease(id INTEGER PRIMARY KEY CHECK(id = 1), token TEXT NOT NULL,"
    " pid INTEGER NOT NULL, boot TEXT NOT NULL, heartbeat_ms INTEGER NOT NULL) STRICT;";

}  // namespace

Result<void> set_up(Database& db, const KvLayout& layout, const std::string& name) {
  HEARTH_TRY(db.execute(kPragmas));
  const std::string hash = to_hex(layout.hash());
  HEARTH_ASSIGN_OR_RETURN(int64_t application, db.query_integer("PRAGMA application_id"));
  if (application == 0) {
    HEARTH_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(db));
    // Another process may have made it meanwhile.
    HEARTH_ASSIGN_OR_RETURN(application, db.query_integer("PRAGMA application_id"));
    if (application == 0) {
      HEARTH_TRY(db.execute(kSchema));
      HEARTH_ASSIGN_OR_RETURN(Statement meta, db.prepare("INSERT INTO meta VALUES(?, ?)"));
      const std::pair<const char*, std::string> entries[] = {
          {"layout", hash},
          {"model", layout.model},
          {"identity", layout.identity},
          {"block_size", std::to_string(layout.block_size)},
          {"block_bytes", fmt::format("{}", fmt::join(layout.block_bytes, ","))},
          {"state_group", std::to_string(layout.state_group)}};
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
    return Error::corrupt(fmt::format("{}: application {:x} format {}, want {:x} format {}", name,
                                      application, version, kStoreApplicationId, kStoreFormat));
  }
  const Result<std::string> found = db.query_text("SELECT value FROM meta WHERE key = 'layout'");
  if (!found.ok() && found.error().code != ErrorCode::kNotFound &&
      found.error().code != ErrorCode::kIo) {
    return found.error();
  }
  if (!found.ok() || *found != hash) {
    return Error::corrupt(name + ": of another model or layout");
  }
  return {};
}

}  // namespace hearth::engine
