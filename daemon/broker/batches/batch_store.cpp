// Files, and what both files and batches need.

#include <algorithm>
#include <span>
#include <utility>

#include "daemon/broker/batches/batch_rows.h"
#include "kernels/base/match.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"

namespace hearth::broker {
namespace {

/// Rows removed in one transaction, so that a sweep does not keep others waiting.
constexpr int64_t kSweepRows = 64;

constexpr const char* kSchema =
    "CREATE TABLE file(seq INTEGER PRIMARY KEY, owner INTEGER NOT NULL, id TEXT NOT NULL,"
    " name TEXT NOT NULL, purpose TEXT NOT NULL, created_s INTEGER NOT NULL,"
    " bytes INTEGER NOT NULL, shown INTEGER NOT NULL) STRICT;"
    "CREATE UNIQUE INDEX file_id ON file(owner, id);"
    "CREATE TABLE piece(file INTEGER NOT NULL, at INTEGER NOT NULL, bytes BLOB NOT NULL,"
    " PRIMARY KEY(file, at)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE batch(seq INTEGER PRIMARY KEY, owner INTEGER NOT NULL, id TEXT NOT NULL,"
    " endpoint TEXT NOT NULL, metadata TEXT NOT NULL, status TEXT NOT NULL,"
    " problem TEXT NOT NULL, created_s INTEGER NOT NULL, started_s INTEGER NOT NULL,"
    " cancelling_s INTEGER NOT NULL, ended_s INTEGER NOT NULL, total INTEGER NOT NULL,"
    " completed INTEGER NOT NULL, failed INTEGER NOT NULL, input INTEGER NOT NULL,"
    " input_id TEXT NOT NULL, output INTEGER NOT NULL, errors INTEGER NOT NULL) STRICT;"
    "CREATE UNIQUE INDEX batch_id ON batch(owner, id);"
    "CREATE INDEX batch_ended ON batch(ended_s);"
    "CREATE TABLE done(batch INTEGER NOT NULL, line INTEGER NOT NULL,"
    " PRIMARY KEY(batch, line)) STRICT, WITHOUT ROWID;";

constexpr StateFileFormat kFormat{.what = "batches",
                                  .application_id = 0x68726274,  // "hrbt"
                                  .version = 1,
                                  .schema = kSchema};

#define HEARTH_FILE_COLUMNS "seq, owner, id, name, purpose, created_s, bytes"
#define HEARTH_BATCH_COLUMNS                                                                 \
  "seq, owner, id, endpoint, metadata, status, problem, created_s, started_s, cancelling_s," \
  " ended_s, total, completed, failed, input, input_id, output, errors"

Error no_file(std::string_view id) {
  return Error::not_found(fmt::format("No such File object: {}", id), "file_id");
}

}  // namespace

// ---- Opening -----------------------------------------------------------------------------------

BatchStore::BatchStore(BatchStoreConfig config)
    : config_(std::move(config)),
      file_(
          config_.file, kFormat, config_.vfs,
          {.opened = [this](Database& db) { return prepare(db); }, .closing = [this] { drop(); }}) {
}

BatchStore::~BatchStore() = default;

void BatchStore::drop() {
  statements_.reset();
  counts_ = {};
}

Result<void> BatchStore::change(Database& db, const std::function<Result<void>()>& work) {
  const Counts before = counts_;
  const Result<void> changed = [&]() -> Result<void> {
    HEARTH_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(db));
    HEARTH_TRY(work());
    return transaction.commit();
  }();
  if (!changed.ok()) counts_ = before;
  return changed;
}

Result<void> BatchStore::prepare(Database& db) {
  auto made = std::make_unique<Statements>();
  const std::pair<Statement*, const char*> all[] = {
      {&made->add_file,
       "INSERT INTO file(owner, id, name, purpose, created_s, bytes, shown) VALUES(?,?,?,?,?,0,?)"},
      {&made->find_file,
       "SELECT " HEARTH_FILE_COLUMNS " FROM file WHERE owner = ? AND id = ? AND shown = 1"},
      {&made->file_at, "SELECT " HEARTH_FILE_COLUMNS " FROM file WHERE seq = ?"},
      // Both directions: seq times 1 or -1.
      {&made->list_files, "SELECT " HEARTH_FILE_COLUMNS
                          " FROM file WHERE owner = ?1 AND shown = 1 AND seq * ?2 > ?3 AND"
                          " (?4 = '' OR purpose = ?4) ORDER BY seq * ?2 LIMIT ?5"},
      {&made->set_bytes, "UPDATE file SET bytes = bytes + ? WHERE seq = ?"},
      {&made->show_file, "UPDATE file SET shown = 1 WHERE seq = ?"},
      {&made->remove_file, "DELETE FROM file WHERE seq = ?"},
      {&made->add_piece, "INSERT INTO piece(file, at, bytes) VALUES(?,?,?)"},
      {&made->piece_from,
       "SELECT at, bytes FROM piece WHERE file = ?1 AND at >= (SELECT max(at) FROM piece"
       " WHERE file = ?1 AND at <= ?2) ORDER BY at"},
      {&made->remove_pieces, "DELETE FROM piece WHERE file = ?"},
      {&made->add_batch,
       "INSERT INTO batch(owner, id, endpoint, metadata, status, problem, created_s, started_s,"
       " cancelling_s, ended_s, total, completed, failed, input, input_id, output, errors)"
       " VALUES(?,?,?,?,'validating','',?,0,0,0,0,0,0,?,?,0,0)"},
      {&made->find_batch, "SELECT " HEARTH_BATCH_COLUMNS " FROM batch WHERE owner = ? AND id = ?"},
      {&made->batch_at, "SELECT " HEARTH_BATCH_COLUMNS " FROM batch WHERE seq = ?"},
      {&made->live, "SELECT " HEARTH_BATCH_COLUMNS " FROM batch WHERE ended_s = 0 ORDER BY seq"},
      {&made->list_batches,
       "SELECT " HEARTH_BATCH_COLUMNS " FROM batch WHERE owner = ?1 AND seq * ?2 > ?3"
       " ORDER BY seq * ?2 LIMIT ?4"},
      {&made->set_status,
       "UPDATE batch SET status = ?, problem = ?, started_s = ?, cancelling_s = ?, ended_s = ?"
       " WHERE seq = ?"},
      {&made->set_counts, "UPDATE batch SET total = ?, completed = ?, failed = ? WHERE seq = ?"},
      {&made->set_files, "UPDATE batch SET output = ?, errors = ? WHERE seq = ?"},
      {&made->num_live, "SELECT count(*) FROM batch WHERE owner = ? AND ended_s = 0"},
      {&made->reads_file, "SELECT id FROM batch WHERE input = ? AND ended_s = 0 LIMIT 1"},
      {&made->remove_done, "DELETE FROM done WHERE batch = ?"},
      {&made->add_done, "INSERT INTO done(batch, line) VALUES(?,?)"},
      {&made->is_done, "SELECT 1 FROM done WHERE batch = ? AND line = ?"},
      {&made->old_files, "SELECT " HEARTH_FILE_COLUMNS
                         " FROM file WHERE shown = 1 AND created_s <= ?1 AND NOT EXISTS (SELECT 1"
                         " FROM batch WHERE input = file.seq AND ended_s = 0) LIMIT ?2"},
      {&made->remove_batches, "DELETE FROM batch WHERE ended_s > 0 AND ended_s <= ?"},
  };
  for (const auto& [statement, sql] : all) {
    HEARTH_ASSIGN_OR_RETURN(*statement, db.prepare(sql));
  }
  HEARTH_ASSIGN_OR_RETURN(
      Statement sums, db.prepare("SELECT owner, count(*), sum(bytes) FROM file GROUP BY owner"));
  Counts counts;
  while (true) {
    HEARTH_ASSIGN_OR_RETURN(const bool row, sums.step());
    if (!row) break;
    const int64_t bytes = sums.integer(2) + sums.integer(1) * kFileBytes;
    counts.bytes_of[sums.integer(0)] = bytes;
    counts.files += sums.integer(1);
    counts.bytes += bytes;
  }
  statements_ = std::move(made);
  counts_ = std::move(counts);
  return {};
}

BatchStore::FileRow BatchStore::file_of(const Statement& row) {
  return {.seq = row.integer(0),
          .owner = row.integer(1),
          .file = {.id = row.text(2),
                   .name = row.text(3),
                   .purpose = row.text(4),
                   .created_s = row.integer(5),
                   .bytes = row.integer(6)}};
}

BatchStore::BatchRow BatchStore::batch_of(const Statement& row) {
  BatchRow out{.seq = row.integer(0), .owner = row.integer(1)};
  out.batch = {.id = row.text(2),
               .endpoint = row.text(3),
               .input_file_id = row.text(15),
               .metadata = row.text(4),
               .status = row.text(5),
               .problem = row.text(6),
               .created_s = row.integer(7),
               .started_s = row.integer(8),
               .cancelling_s = row.integer(9),
               .ended_s = row.integer(10),
               .expires_s = row.integer(7) + kWindowS,
               .total = row.integer(11),
               .completed = row.integer(12),
               .failed = row.integer(13)};
  out.input = row.integer(14);
  out.output = row.integer(16);
  out.errors = row.integer(17);
  return out;
}

// ---- Questions of a user -----------------------------------------------------------------------

Result<http::BatchReply> BatchStore::ask(uint32_t owner, http::BatchQuery query) {
  return file_.use<http::BatchReply>([&](Database& db) -> Result<http::BatchReply> {
    if (const auto* piece = std::get_if<http::ReadFile>(&query)) return read_file(owner, *piece);
    HEARTH_ASSIGN_OR_RETURN(std::string body, answer(db, owner, query));
    return http::BatchReply{.text = std::move(body)};
  });
}

Result<std::string> BatchStore::answer(Database& db, uint32_t owner, http::BatchQuery& query) {
  return match(
      query, [&](const http::UploadFile& asked) { return upload(db, owner, asked); },
      [&](const http::ListFiles& asked) { return list_files(owner, asked); },
      [&](const http::ShowFile& asked) -> Result<std::string> {
        HEARTH_ASSIGN_OR_RETURN(const FileRow row, find_file(owner, asked.id));
        return http::file_body(row.file);
      },
      [](const http::ReadFile&) -> Result<std::string> {
        return Error::internal("a piece is not a body");
      },
      [&](const http::RemoveFile& asked) { return remove_file(db, owner, asked.id); },
      [&](const http::CreateBatch& asked) { return create(owner, asked); },
      [&](const http::ListBatches& asked) { return list_batches(owner, asked); },
      [&](const http::ShowBatch& asked) -> Result<std::string> {
        HEARTH_ASSIGN_OR_RETURN(const BatchRow row, find_batch(owner, asked.id));
        return body_of(row);
      },
      [&](const http::CancelBatch& asked) { return cancel(owner, asked.id); });
}

// ---- Files -------------------------------------------------------------------------------------

Result<BatchStore::FileRow> BatchStore::find_file(uint32_t owner, const std::string& id) {
  Statement& find = statements_->find_file;
  HEARTH_ASSIGN_OR_RETURN(const bool row,
                          find.bind(0, int64_t{owner}).bind(1, std::string_view(id)).step());
  if (!row) return no_file(id);
  FileRow out = file_of(find);
  find.reset();
  return out;
}

Result<BatchStore::FileRow> BatchStore::file_at(int64_t seq) {
  Statement& at = statements_->file_at;
  HEARTH_ASSIGN_OR_RETURN(const bool row, at.bind(0, seq).step());
  if (!row) return no_file("");
  FileRow out = file_of(at);
  at.reset();
  return out;
}

Result<void> BatchStore::check_room(int64_t owner, int64_t bytes) const {
  const auto found = counts_.bytes_of.find(owner);
  const int64_t held = found == counts_.bytes_of.end() ? 0 : found->second;
  if (held + bytes <= config_.owner_bytes && counts_.bytes + bytes <= config_.bytes) return {};
  return Error::too_large(
      fmt::format("your files hold {} bytes, and {} more do not fit into the {} of a user and the "
                  "{} of all; remove some",
                  held, bytes, config_.owner_bytes, config_.bytes),
      "file");
}

Result<int64_t> BatchStore::add_file(Database& db, int64_t owner, const http::StoredFile& file,
                                     bool shown) {
  HEARTH_TRY(statements_->add_file.bind(0, owner)
                 .bind(1, std::string_view(file.id))
                 .bind(2, std::string_view(file.name))
                 .bind(3, std::string_view(file.purpose))
                 .bind(4, file.created_s)
                 .bind(5, int64_t{shown})
                 .run());
  ++counts_.files;
  counts_.bytes += kFileBytes;
  counts_.bytes_of[owner] += kFileBytes;
  return db.last_insert_id();
}

Result<void> BatchStore::add_piece(int64_t owner, int64_t file, int64_t at,
                                   std::string_view bytes) {
  HEARTH_TRY(statements_->add_piece.bind(0, file).bind(1, at).bind(2, blob_of(bytes)).run());
  const int64_t size = narrow<int64_t>(bytes.size());
  HEARTH_TRY(statements_->set_bytes.bind(0, size).bind(1, file).run());
  counts_.bytes += size;
  counts_.bytes_of[owner] += size;
  return {};
}

Result<std::string> BatchStore::upload(Database& db, uint32_t owner,
                                       const http::UploadFile& query) {
  HEARTH_ASSIGN_OR_RETURN(const http::Upload upload,
                          http::parse_upload(query.body, query.boundary));
  const int64_t size = narrow<int64_t>(upload.content.size());
  HEARTH_TRY(check_room(owner, size + kFileBytes));
  http::StoredFile file{.id = new_id("file-"),
                        .name = upload.name,
                        .purpose = upload.purpose,
                        .created_s = config_.now_s(),
                        .bytes = size};
  const auto work = [&]() -> Result<void> {
    HEARTH_ASSIGN_OR_RETURN(const int64_t seq, add_file(db, owner, file, true));
    for (size_t at = 0; at < upload.content.size(); at += kPieceBytes) {
      HEARTH_TRY(
          add_piece(owner, seq, narrow<int64_t>(at), upload.content.substr(at, kPieceBytes)));
    }
    return {};
  };
  HEARTH_TRY(change(db, work));
  return http::file_body(file);
}

Result<std::string> BatchStore::list_files(uint32_t owner, const http::ListFiles& query) {
  const int64_t direction = query.page.ascending ? 1 : -1;
  int64_t after = INT64_MIN;
  if (!query.page.after.empty()) {
    const Result<FileRow> from = find_file(owner, query.page.after);
    if (!from) return no_after();
    after = from->seq * direction;
  }
  Statement& list = statements_->list_files;
  list.bind(0, int64_t{owner}).bind(1, direction).bind(2, after);
  list.bind(3, std::string_view(query.purpose)).bind(4, narrow<int64_t>(query.page.limit) + 1);
  std::vector<std::string> bodies;
  std::string first, last;
  while (true) {
    HEARTH_ASSIGN_OR_RETURN(const bool row, list.step());
    if (!row) return http::list_body(bodies, first, last, false);
    if (bodies.size() == query.page.limit) break;
    const FileRow file = file_of(list);
    bodies.push_back(http::file_body(file.file));
    if (first.empty()) first = file.file.id;
    last = file.file.id;
  }
  list.reset();
  return http::list_body(bodies, first, last, true);
}

// From `at` on, whole rows until there are at least `max_bytes`, but for the first row's beginning.
Result<std::string> BatchStore::content(int64_t file, int64_t at, size_t max_bytes) {
  Statement& from = statements_->piece_from;
  from.bind(0, file).bind(1, at);
  std::string out;
  while (out.size() < max_bytes) {
    HEARTH_ASSIGN_OR_RETURN(const bool row, from.step());
    if (!row) return out;
    const std::span<const std::byte> bytes = from.blob(1);
    const size_t skip =
        out.empty()
            ? std::min(bytes.size(), narrow<size_t>(std::max<int64_t>(at - from.integer(0), 0)))
            : 0;
    out.append(reinterpret_cast<const char*>(bytes.data()) + skip, bytes.size() - skip);
    if (out.empty()) break;  // `at` is the end
  }
  from.reset();
  return out;
}

Result<http::BatchReply> BatchStore::read_file(uint32_t owner, const http::ReadFile& query) {
  HEARTH_ASSIGN_OR_RETURN(const FileRow row, find_file(owner, query.id));
  HEARTH_ASSIGN_OR_RETURN(std::string text, content(row.seq, query.at, kPieceBytes));
  return http::BatchReply{.text = std::move(text), .file_bytes = row.file.bytes};
}

Result<void> BatchStore::drop_file(const FileRow& row) {
  HEARTH_TRY(statements_->remove_pieces.bind(0, row.seq).run());
  HEARTH_TRY(statements_->remove_file.bind(0, row.seq).run());
  file_.note_removed();
  const int64_t bytes = row.file.bytes + kFileBytes;
  --counts_.files;
  counts_.bytes -= bytes;
  int64_t& of_owner = counts_.bytes_of[row.owner];
  of_owner -= bytes;
  if (of_owner <= 0) counts_.bytes_of.erase(row.owner);
  return {};
}

Result<std::string> BatchStore::remove_file(Database& db, uint32_t owner, const std::string& id) {
  HEARTH_ASSIGN_OR_RETURN(const FileRow row, find_file(owner, id));
  Statement& reads = statements_->reads_file;
  HEARTH_ASSIGN_OR_RETURN(const bool used, reads.bind(0, row.seq).step());
  if (used) {
    const std::string batch = reads.text(0);
    reads.reset();
    return Error::invalid(fmt::format("{} is the input of {}, which has not ended", id, batch),
                          "file_id");
  }
  HEARTH_TRY(change(db, [&] { return drop_file(row); }));
  HEARTH_TRY(file_.forget_removed());
  return http::removed_file_body(id);
}

// ---- Time --------------------------------------------------------------------------------------

Result<void> BatchStore::expire(Database& db) {
  for (bool more = true; more;) {
    std::vector<FileRow> rows;
    Statement& old = statements_->old_files;
    old.bind(0, oldest_s()).bind(1, kSweepRows);
    while (true) {
      HEARTH_ASSIGN_OR_RETURN(const bool row, old.step());
      if (!row) break;
      rows.push_back(file_of(old));
    }
    more = size32(rows) == kSweepRows;
    const auto work = [&]() -> Result<void> {
      for (const FileRow& row : rows) HEARTH_TRY(drop_file(row));
      return statements_->remove_batches.bind(0, oldest_s()).run();
    };
    HEARTH_TRY(change(db, work));
  }
  return {};
}

Result<void> BatchStore::sweep() {
  file_.forget_damaged(oldest_s());
  return file_.use<void>([this](Database& db) -> Result<void> {
    HEARTH_TRY(expire(db));
    return file_.forget_removed();
  });
}

}  // namespace hearth::broker
