#include "daemon/broker/responses/response_store.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"
#include "kernels/database/sqlite.h"

namespace hearth::broker {
namespace {

/// Answers of one conversation.
constexpr size_t kMaxTurns = 4096;
/// What a row takes in addition to its texts.
constexpr int64_t kRowBytes = 128;
/// Rows removed in one transaction, so that a sweep does not keep others waiting.
constexpr int kSweepRows = 256;

constexpr const char* kSchema =
    "CREATE TABLE response(seq INTEGER PRIMARY KEY, owner INTEGER NOT NULL, id TEXT NOT NULL,"
    " previous TEXT NOT NULL, created_s INTEGER NOT NULL, bytes INTEGER NOT NULL,"
    " head BLOB NOT NULL, output BLOB NOT NULL, input BLOB NOT NULL) STRICT;"
    "CREATE UNIQUE INDEX response_id ON response(owner, id);"
    "CREATE INDEX response_age ON response(owner, seq, bytes);"
    "CREATE INDEX response_created ON response(created_s, owner, bytes);";

constexpr StateFileFormat kFormat{.what = "responses",
                                  .application_id = 0x68727372,  // "hrsr"
                                  .version = 1,
                                  .schema = kSchema};

std::string blob_text(std::span<const std::byte> blob) {
  return {reinterpret_cast<const char*>(blob.data()), blob.size()};
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

// ---- Opening -----------------------------------------------------------------------------------

struct ResponseStore::Statements {
  Statement insert, find, link, texts, remove, oldest, expired;
};

ResponseStore::ResponseStore(ResponseStoreConfig config)
    : config_(std::move(config)),
      file_(
          config_.file, kFormat, config_.vfs,
          {.opened = [this](Database& db) { return prepare(db); }, .closing = [this] { drop(); }}) {
}

ResponseStore::~ResponseStore() = default;

void ResponseStore::drop() {
  statements_.reset();
  bytes_of_.clear();
  entries_ = 0;
  bytes_ = 0;
}

Result<void> ResponseStore::prepare(Database& db) {
  auto made = std::make_unique<Statements>();
  const auto make = [&db](Statement& out, std::string_view sql) -> Result<void> {
    HEARTH_ASSIGN_OR_RETURN(out, db.prepare(sql));
    return {};
  };
  HEARTH_TRY(make(made->insert,
                  "INSERT INTO response(owner, id, previous, created_s, bytes, head, output,"
                  " input) VALUES(?,?,?,?,?,?,?,?)"));
  HEARTH_TRY(make(made->find,
                  "SELECT seq, bytes, head, output FROM response"
                  " WHERE owner = ? AND id = ? AND created_s > ?"));
  HEARTH_TRY(make(made->link,
                  "SELECT seq, previous, length(input) + length(output) FROM response"
                  " WHERE owner = ? AND id = ? AND created_s > ?"));
  HEARTH_TRY(make(made->texts, "SELECT input, output FROM response WHERE seq = ?"));
  HEARTH_TRY(make(made->remove, "DELETE FROM response WHERE seq = ?"));
  HEARTH_TRY(
      make(made->oldest, "SELECT seq, bytes FROM response WHERE owner = ? ORDER BY seq LIMIT 1"));
  HEARTH_TRY(
      make(made->expired, "SELECT seq, owner, bytes FROM response WHERE created_s <= ? LIMIT ?"));
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
  statements_ = std::move(made);
  bytes_of_ = std::move(bytes_of);
  entries_ = entries;
  bytes_ = bytes;
  return {};
}

// ---- Writing -----------------------------------------------------------------------------------

Result<void> ResponseStore::keep(uint32_t owner, const http::KeptResponse& response) {
  return file_.use<void>([&](Database& db) { return insert(db, owner, response); });
}

Result<void> ResponseStore::insert(Database& db, uint32_t owner,
                                   const http::KeptResponse& response) {
  const int64_t bytes = narrow<int64_t>(response.bytes()) + kRowBytes;
  if (bytes > std::min(config_.bytes, config_.owner_bytes)) {
    return Error::too_large(fmt::format("the answer and its input have {} bytes, at most {} are "
                                        "kept",
                                        bytes, std::min(config_.bytes, config_.owner_bytes)),
                            "store");
  }
  HEARTH_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(db));
  HEARTH_TRY(statements_->insert.bind(0, int64_t{owner})
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
  Statement& oldest = statements_->oldest;
  HEARTH_ASSIGN_OR_RETURN(const bool row, oldest.bind(0, owner).step());
  if (!row) return false;
  const int64_t seq = oldest.integer(0), bytes = oldest.integer(1);
  oldest.reset();
  HEARTH_TRY(remove_row(owner, seq, bytes));
  return true;
}

Result<void> ResponseStore::remove_row(int64_t owner, int64_t seq, int64_t bytes) {
  HEARTH_TRY(statements_->remove.bind(0, seq).run());
  file_.note_removed();
  --entries_;
  bytes_ -= bytes;
  int64_t& of_owner = bytes_of_[owner];
  of_owner -= bytes;
  if (of_owner <= 0) bytes_of_.erase(owner);
  return {};
}

Result<void> ResponseStore::remove_one(uint32_t owner, const std::string& id) {
  Statement& find = statements_->find;
  HEARTH_ASSIGN_OR_RETURN(
      const bool row,
      find.bind(0, int64_t{owner}).bind(1, std::string_view(id)).bind(2, oldest_s()).step());
  if (!row) return absent({.kind = http::KeptQuery::Kind::kRemove, .id = id}, id);
  const int64_t seq = find.integer(0), bytes = find.integer(1);
  find.reset();
  HEARTH_TRY(remove_row(owner, seq, bytes));
  return file_.forget_removed();
}

Result<void> ResponseStore::expire(Database& db) {
  while (true) {
    HEARTH_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(db));
    struct Row {
      int64_t seq;
      int64_t owner;
      int64_t bytes;
    };
    std::vector<Row> rows;
    Statement& expired = statements_->expired;
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

Result<void> ResponseStore::sweep() {
  file_.forget_damaged(oldest_s());
  return file_.use<void>([this](Database& db) -> Result<void> {
    HEARTH_TRY(expire(db));
    return file_.forget_removed();
  });
}

// ---- Reading -----------------------------------------------------------------------------------

Result<std::string> ResponseStore::ask(uint32_t owner, const http::KeptQuery& query) {
  return file_.use<std::string>([&](Database&) { return answer(owner, query); });
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
  Statement& find = statements_->find;
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
  Statement& link = statements_->link;
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
  Statement& texts = statements_->texts;
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
