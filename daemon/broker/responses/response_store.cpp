#include "daemon/broker/responses/response_store.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "kernels/base/log.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"
#include "kernels/database/bus_guard.h"
#include "kernels/database/sqlite.h"

namespace hearth::broker {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kFormat = 1;                  // PRAGMA user_version
constexpr int64_t kApplicationId = 0x68727372;  // PRAGMA application_id: "hrsr"
constexpr int kBusyMs = 250;
/// Answers of one conversation.
constexpr size_t kMaxTurns = 4096;
/// What a row takes in addition to its texts.
constexpr int64_t kRowBytes = 128;
/// Rows removed in one transaction, so that a sweep does not keep others waiting.
constexpr int kSweepRows = 256;

constexpr const char* kPragmas =
    "PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
    "PRAGMA secure_delete=ON; PRAGMA cache_size=-2048; PRAGMA trusted_schema=OFF;"
    "PRAGMA cell_size_check=ON; PRAGMA temp_store=MEMORY;";

constexpr const char* kSchema =
    "CREATE TABLE response(seq INTEGER PRIMARY KEY, owner INTEGER NOT NULL, id TEXT NOT NULL,"
    " previous TEXT NOT NULL, created_s INTEGER NOT NULL, bytes INTEGER NOT NULL,"
    " head BLOB NOT NULL, output BLOB NOT NULL, input BLOB NOT NULL) STRICT;"
    "CREATE UNIQUE INDEX response_id ON response(owner, id);"
    "CREATE INDEX response_age ON response(owner, seq, bytes);"
    "CREATE INDEX response_created ON response(created_s, owner, bytes);";

std::span<const std::byte> blob_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string blob_text(std::span<const std::byte> blob) {
  return {reinterpret_cast<const char*>(blob.data()), blob.size()};
}

fs::path aside_name(const fs::path& file) { return file.string() + ".damaged"; }

Result<void> set_up(Database& db, const std::string& name) {
  db.set_busy_timeout(kBusyMs);
  HEARTH_TRY(db.execute(kPragmas));
  HEARTH_ASSIGN_OR_RETURN(int64_t application, db.query_integer("PRAGMA application_id"));
  HEARTH_ASSIGN_OR_RETURN(const int64_t tables,
                          db.query_integer("SELECT count(*) FROM sqlite_schema"));
  if (application == 0 && tables == 0) {
    HEARTH_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(db));
    HEARTH_TRY(db.execute(kSchema));
    HEARTH_TRY(db.execute(
        fmt::format("PRAGMA user_version={}; PRAGMA application_id={};", kFormat, kApplicationId)));
    HEARTH_TRY(transaction.commit());
    application = kApplicationId;
  }
  HEARTH_ASSIGN_OR_RETURN(const int64_t version, db.query_integer("PRAGMA user_version"));
  if (application != kApplicationId || version != kFormat) {
    return Error::corrupt(fmt::format("{}: application {:x} format {}, want {:x} format {}", name,
                                      application, version, kApplicationId, kFormat));
  }
  return {};
}

Error absent(const http::KeptQuery& query, std::string_view id) {
  if (query.kind != http::KeptQuery::Kind::kConversation) {
    return Error::not_found(fmt::format("Response with id '{}' not found.", id), "response_id");
  }
  return Error::not_found(fmt::format("Previous response with id '{}' not found.", id),
                          "previous_response_id");
}

/// Appends the elements of a JSON list to another that is being written.
void append_elements(std::string_view list, std::string* out) {
  if (list.size() <= 2) return;
  if (out->back() != '[') *out += ',';
  *out += list.substr(1, list.size() - 2);
}

}  // namespace

// ---- Opening and failing -----------------------------------------------------------------------

struct ResponseStore::Open {
  Database database;
  // Finalized before the connection closes.
  Statement insert, find, link, texts, remove, oldest, expired;
};

ResponseStore::ResponseStore(ResponseStoreConfig config) : config_(std::move(config)) {}

ResponseStore::~ResponseStore() {
  BusGuard::turn_on();  // this thread may differ from the one that used it before
  if (open_ != nullptr && removed_) (void)empty_log();
}

void ResponseStore::close() {
  open_.reset();
  BusGuard::clear();
  bytes_of_.clear();
  entries_ = 0;
  bytes_ = 0;
}

Result<void> ResponseStore::open() {
  BusGuard::turn_on();  // the log's index is mapped
  std::error_code problem;
  fs::create_directories(config_.file.parent_path(), problem);
  const fs::file_type type = fs::symlink_status(config_.file, problem).type();
  if (type != fs::file_type::regular && type != fs::file_type::not_found) HEARTH_TRY(put_aside());
  auto opened = std::make_unique<Open>();
  HEARTH_ASSIGN_OR_RETURN(opened->database, Database::open(config_.file, config_.vfs));
  Database& db = opened->database;
  HEARTH_TRY(set_up(db, config_.file.filename().string()));
  const auto prepare = [&db](Statement& out, std::string_view sql) -> Result<void> {
    HEARTH_ASSIGN_OR_RETURN(out, db.prepare(sql));
    return {};
  };
  HEARTH_TRY(prepare(opened->insert,
                     "INSERT INTO response(owner, id, previous, created_s, bytes, head, output,"
                     " input) VALUES(?,?,?,?,?,?,?,?)"));
  HEARTH_TRY(prepare(opened->find,
                     "SELECT seq, bytes, head, output FROM response"
                     " WHERE owner = ? AND id = ? AND created_s > ?"));
  HEARTH_TRY(prepare(opened->link,
                     "SELECT seq, previous, length(input) + length(output) FROM response"
                     " WHERE owner = ? AND id = ? AND created_s > ?"));
  HEARTH_TRY(prepare(opened->texts, "SELECT input, output FROM response WHERE seq = ?"));
  HEARTH_TRY(prepare(opened->remove, "DELETE FROM response WHERE seq = ?"));
  HEARTH_TRY(prepare(opened->oldest,
                     "SELECT seq, bytes FROM response WHERE owner = ? ORDER BY seq LIMIT 1"));
  HEARTH_TRY(prepare(opened->expired,
                     "SELECT seq, owner, bytes FROM response WHERE created_s <= ? LIMIT ?"));
  HEARTH_ASSIGN_OR_RETURN(
      Statement sums,
      db.prepare("SELECT owner, count(*), sum(bytes) FROM response GROUP BY owner"));
  std::map<int64_t, int64_t> bytes_of;
  int64_t entries = 0, bytes = 0;
  while (true) {
    HEARTH_ASSIGN_OR_RETURN(const bool row, sums.step());
    if (!row) break;
    bytes_of[sums.integer(0)] = sums.integer(2);
    entries += sums.integer(1);
    bytes += sums.integer(2);
  }
  open_ = std::move(opened);
  bytes_of_ = std::move(bytes_of);
  entries_ = entries;
  bytes_ = bytes;
  return {};
}

Result<void> ResponseStore::put_aside() {
  close();
  const fs::path aside = aside_name(config_.file);
  std::error_code problem;
  fs::remove_all(aside, problem);
  fs::rename(config_.file, aside, problem);
  if (problem) {
    return Error::io(fmt::format("{}: is damaged and cannot be moved away: {}",
                                 config_.file.filename().string(), problem.message()));
  }
  // They belong to the file that has left.
  for (const char* suffix : {"-wal", "-shm", "-journal"}) {
    fs::remove(config_.file.string() + suffix, problem);
  }
  log_warn("responses_put_aside", "file=\"{}\"", aside.string());
  return {};
}

template <class T>
Result<T> ResponseStore::with_database(const std::function<Result<T>()>& work) {
  for (bool again = true;; again = false) {
    Result<void> opened = open_ == nullptr ? open() : Result<void>();
    Result<T> result = opened.ok() ? work() : Result<T>(opened.take_error());
    if (result.ok()) return result;
    const ErrorCode code = result.error().code;
    if (code == ErrorCode::kCorrupt && again) {
      log_warn("responses_damaged", "error=\"{}\"", result.error().message);
      HEARTH_TRY(put_aside());
      continue;
    }
    // A failure, and no answer to a question: the next call opens the file again, and counts again.
    if (result.error().field.empty()) close();
    return result;
  }
}

// ---- Writing -----------------------------------------------------------------------------------

Result<void> ResponseStore::keep(uint32_t owner, const http::KeptResponse& response) {
  return with_database<void>([&] { return insert(owner, response); });
}

Result<void> ResponseStore::insert(uint32_t owner, const http::KeptResponse& response) {
  const int64_t bytes = narrow<int64_t>(response.bytes()) + kRowBytes;
  if (bytes > std::min(config_.bytes, config_.owner_bytes)) {
    return Error::too_large(fmt::format("the answer and its input have {} bytes, at most {} are "
                                        "kept",
                                        bytes, std::min(config_.bytes, config_.owner_bytes)),
                            "store");
  }
  HEARTH_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(open_->database));
  HEARTH_TRY(open_->insert.bind(0, int64_t{owner})
                 .bind(1, std::string_view(response.id))
                 .bind(2, std::string_view(response.previous_id))
                 .bind(3, response.created_s)
                 .bind(4, bytes)
                 .bind(5, blob_of(response.head))
                 .bind(6, blob_of(response.output))
                 .bind(7, blob_of(response.input))
                 .run());
  HEARTH_TRY(transaction.commit());
  ++entries_;
  bytes_ += bytes;
  bytes_of_[owner] += bytes;
  return make_room(owner);
}

Result<void> ResponseStore::make_room(uint32_t owner) {
  const auto most = [this] {
    return std::ranges::max_element(bytes_of_, {}, [](const auto& each) { return each.second; });
  };
  while (bytes_of_[owner] > config_.owner_bytes || bytes_ > config_.bytes) {
    const int64_t from = bytes_of_[owner] > config_.owner_bytes ? owner : most()->first;
    HEARTH_ASSIGN_OR_RETURN(const bool removed, remove_oldest(from));
    if (!removed) return Error::internal("the counts of kept answers contradict the rows");
  }
  return {};
}

Result<bool> ResponseStore::remove_oldest(int64_t owner) {
  Statement& oldest = open_->oldest;
  HEARTH_ASSIGN_OR_RETURN(const bool row, oldest.bind(0, owner).step());
  if (!row) return false;
  const int64_t seq = oldest.integer(0), bytes = oldest.integer(1);
  oldest.reset();
  HEARTH_TRY(remove_row(owner, seq, bytes));
  return true;
}

Result<void> ResponseStore::remove_row(int64_t owner, int64_t seq, int64_t bytes) {
  HEARTH_TRY(open_->remove.bind(0, seq).run());
  removed_ = true;
  --entries_;
  bytes_ -= bytes;
  int64_t& of_owner = bytes_of_[owner];
  of_owner -= bytes;
  if (of_owner <= 0) bytes_of_.erase(owner);
  return {};
}

Result<void> ResponseStore::remove_one(uint32_t owner, const std::string& id) {
  Statement& find = open_->find;
  HEARTH_ASSIGN_OR_RETURN(
      const bool row,
      find.bind(0, int64_t{owner}).bind(1, std::string_view(id)).bind(2, oldest_s()).step());
  if (!row) return absent({.kind = http::KeptQuery::Kind::kRemove, .id = id}, id);
  const int64_t seq = find.integer(0), bytes = find.integer(1);
  find.reset();
  HEARTH_TRY(remove_row(owner, seq, bytes));
  return empty_log();
}

Result<void> ResponseStore::expire() {
  while (true) {
    HEARTH_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(open_->database));
    struct Row {
      int64_t seq;
      int64_t owner;
      int64_t bytes;
    };
    std::vector<Row> rows;
    Statement& expired = open_->expired;
    expired.bind(0, oldest_s()).bind(1, int64_t{kSweepRows});
    while (true) {
      HEARTH_ASSIGN_OR_RETURN(const bool row, expired.step());
      if (!row) break;
      rows.push_back({expired.integer(0), expired.integer(1), expired.integer(2)});
    }
    for (const Row& row : rows) HEARTH_TRY(remove_row(row.owner, row.seq, row.bytes));
    HEARTH_TRY(transaction.commit());
    if (size32(rows) < kSweepRows) return {};
  }
}

// A file that was moved aside has texts, too.
void ResponseStore::forget_damaged() {
  const fs::path aside = aside_name(config_.file);
  struct stat info {};
  std::error_code ignored;
  if (::stat(aside.c_str(), &info) == 0 && info.st_mtim.tv_sec <= oldest_s()) {
    fs::remove_all(aside, ignored);
  }
}

Result<void> ResponseStore::sweep() {
  forget_damaged();
  return with_database<void>([this]() -> Result<void> {
    HEARTH_TRY(expire());
    return removed_ ? empty_log() : Result<void>();
  });
}

// Removed rows are overwritten in the file, but the log may still have them.
Result<void> ResponseStore::empty_log() {
  HEARTH_TRY(open_->database.execute("PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE)"));
  removed_ = false;
  return {};
}

// ---- Reading -----------------------------------------------------------------------------------

Result<std::string> ResponseStore::ask(uint32_t owner, const http::KeptQuery& query) {
  return with_database<std::string>([&] { return answer(owner, query); });
}

Result<std::string> ResponseStore::answer(uint32_t owner, const http::KeptQuery& query) {
  switch (query.kind) {
    case http::KeptQuery::Kind::kResponse: return response(owner, query.id);
    case http::KeptQuery::Kind::kConversation:
    case http::KeptQuery::Kind::kInputItems: return items(owner, query);
    case http::KeptQuery::Kind::kRemove: break;
  }
  HEARTH_TRY(remove_one(owner, query.id));
  return std::string();
}

Result<std::string> ResponseStore::response(uint32_t owner, const std::string& id) {
  Statement& find = open_->find;
  HEARTH_ASSIGN_OR_RETURN(
      const bool row,
      find.bind(0, int64_t{owner}).bind(1, std::string_view(id)).bind(2, oldest_s()).step());
  if (!row) return absent({.kind = http::KeptQuery::Kind::kResponse, .id = id}, id);
  std::string body = blob_text(find.blob(2));
  const std::string output = blob_text(find.blob(3));
  find.reset();
  if (!body.ends_with('}') || body.size() <= 2) return Error::corrupt(id + ": not a JSON object");
  body.back() = ',';
  return body + "\"output\":" + output + "}";
}

// First the links, newest first and without their texts; then the texts, oldest first.
Result<std::string> ResponseStore::items(uint32_t owner, const http::KeptQuery& query) {
  const bool continues = query.kind == http::KeptQuery::Kind::kConversation;
  Statement& link = open_->link;
  std::vector<int64_t> seqs;
  size_t bytes = 0;
  std::string id = query.id;
  while (!id.empty()) {
    HEARTH_ASSIGN_OR_RETURN(
        const bool row,
        link.bind(0, int64_t{owner}).bind(1, std::string_view(id)).bind(2, oldest_s()).step());
    // What is left of a conversation can be listed, but an answer to a part of it would mislead.
    if (!row && (continues || seqs.empty())) return absent(query, id);
    if (!row) break;
    seqs.push_back(link.integer(0));
    bytes += narrow<size_t>(link.integer(2));
    id = link.text(1);
    link.reset();
    if (seqs.size() <= kMaxTurns && bytes <= query.max_bytes) continue;
    return Error::too_large(
        fmt::format("the conversation has more than {} answers or {} bytes; send what the model "
                    "needs of it as input",
                    kMaxTurns, query.max_bytes),
        continues ? "previous_response_id" : "response_id");
  }
  std::string out = R"({"items":[)";
  out.reserve(out.size() + bytes + seqs.size() * 2 + 2);
  Statement& texts = open_->texts;
  for (size_t left = seqs.size(); left-- > 0;) {
    HEARTH_ASSIGN_OR_RETURN(const bool row, texts.bind(0, seqs[left]).step());
    if (!row) return absent(query, query.id);
    append_elements(blob_text(texts.blob(0)), &out);
    if (continues || left > 0) append_elements(blob_text(texts.blob(1)), &out);
    texts.reset();
  }
  return out += "]}";
}

}  // namespace hearth::broker
