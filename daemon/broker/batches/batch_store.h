#pragma once
// Files and batches in a SQLite database, under the user that sent them. Used by one thread at a
// time, which may wait for the disk.
//
//   file   one row per file. bytes: of its content; shown: 0 while a batch still writes it
//   piece  the content of files: bytes from `at` on. An upload has pieces of one size, the output
//   of
//          a batch one piece per line
//   batch  one row per batch. input, output, errors: rows of `file`; 0: none
//   done   lines of batches that have not ended whose results are written: a line and its result
//          are written together, so that a crash neither loses nor doubles one
//
// See state_file.h for the settings of the file and for damage.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/broker/state/state_file.h"
#include "daemon/http/batch.h"
#include "kernels/base/result.h"

namespace hearth::broker {

struct BatchStoreConfig {
  std::filesystem::path file;
  int64_t keep_s = 0;              ///< since a file was made or a batch ended; above 0
  int64_t bytes = 0;               ///< of all files
  int64_t owner_bytes = 0;         ///< of one owner's files
  std::function<int64_t()> now_s;  ///< seconds since 1970
  const char* vfs = nullptr;       ///< SQLite's; null: the platform's
};

/// A batch that has not ended.
struct LiveBatch {
  int64_t seq = 0;
  uint32_t owner = 0;
  std::string id;
  std::string endpoint;
  std::string status;
  int64_t expires_s = 0;
};

/// Where to go on reading a batch's input.
struct InputPlace {
  int64_t at = 0;
  int64_t line = 0;  ///< from 0
};

struct InputLine {
  int64_t number = 0;
  http::BatchLine request;
};

struct InputPart {
  std::vector<InputLine> lines{};  ///< those without a result
  InputPlace next;
  bool ended = false;
};

class BatchStore {
 public:
  explicit BatchStore(BatchStoreConfig config);
  ~BatchStore();
  BatchStore(const BatchStore&) = delete;
  BatchStore& operator=(const BatchStore&) = delete;

  /// Answers a user's question. kNotFound if the user has no such file or batch; kTooLarge if a
  /// file exceeds the bounds; kInvalidArgument names the parameter. Those errors have a field.
  Result<http::BatchReply> ask(uint32_t owner, http::BatchQuery query);

  Result<std::vector<LiveBatch>> live();
  /// Checks the lines of a new batch, whose faulty ones fail at once, and begins it; or ends it, if
  /// the file as a whole cannot be used. Returns its status.
  Result<std::string> begin(int64_t seq);
  /// The next lines without a result: at least one, or the input has ended; at most `max_bytes`
  /// where there are several.
  Result<InputPart> read(int64_t seq, InputPlace from, size_t max_bytes);
  /// Writes the result of a line. kTooLarge with field "file": it does not fit into the bounds.
  Result<void> append(int64_t seq, int64_t line, const http::LineResult& result);
  /// Ends a batch, whose results so far become files. `status`: completed, failed, expired or
  /// cancelled; `problem`: why it failed. If it expired, its other lines fail.
  Result<void> end(int64_t seq, const std::string& status, const std::string& problem = {});
  /// Removes expired files and batches, and overwrites what removed ones have left.
  Result<void> sweep();

  int64_t files() const { return counts_.files; }
  int64_t bytes() const { return counts_.bytes; }

 private:
  struct Statements;
  struct BatchRow;
  struct FileRow;
  static FileRow file_of(const Statement& row);
  static BatchRow batch_of(const Statement& row);
  Result<void> prepare(Database& db);
  void drop();
  /// Runs `work` in a transaction. If it fails, the counts are as before, too.
  Result<void> change(Database& db, const std::function<Result<void>()>& work);

  Result<std::string> answer(Database& db, uint32_t owner, http::BatchQuery& query);
  Result<std::string> upload(Database& db, uint32_t owner, const http::UploadFile& query);
  Result<std::string> list_files(uint32_t owner, const http::ListFiles& query);
  Result<http::BatchReply> read_file(uint32_t owner, const http::ReadFile& query);
  Result<std::string> remove_file(Database& db, uint32_t owner, const std::string& id);
  Result<std::string> create(uint32_t owner, const http::CreateBatch& query);
  Result<std::string> list_batches(uint32_t owner, const http::ListBatches& query);
  Result<std::string> cancel(uint32_t owner, const std::string& id);

  Result<FileRow> find_file(uint32_t owner, const std::string& id);
  Result<FileRow> file_at(int64_t seq);
  Result<BatchRow> find_batch(uint32_t owner, const std::string& id);
  Result<BatchRow> batch_at(int64_t seq);
  Result<std::string> body_of(const BatchRow& row);
  Result<int64_t> add_file(Database& db, int64_t owner, const http::StoredFile& file, bool shown);
  Result<void> add_piece(int64_t owner, int64_t file, int64_t at, std::string_view bytes);
  Result<void> check_room(int64_t owner, int64_t bytes) const;
  Result<std::string> content(int64_t file, int64_t at, size_t max_bytes);
  Result<std::string> begin(Database& db, BatchRow row);
  Result<std::string> check_lines(Database& db, BatchRow* row, std::string_view text);
  Result<InputPart> read(const BatchRow& row, InputPlace from, size_t max_bytes);
  Result<void> write_result(Database& db, BatchRow* row, int64_t line,
                            const http::LineResult& result);
  Result<void> fail_rest(Database& db, BatchRow* row);
  Result<void> finish(BatchRow* row, std::string_view status, std::string_view problem);
  Result<void> set_status(const BatchRow& row);
  Result<void> drop_file(const FileRow& row);
  Result<void> expire(Database& db);
  int64_t oldest_s() const { return config_.now_s() - config_.keep_s; }

  const BatchStoreConfig config_;
  std::unique_ptr<Statements> statements_;
  struct Counts {
    std::map<int64_t, int64_t> bytes_of;  // by owner
    int64_t files = 0;
    int64_t bytes = 0;
  };
  Counts counts_;
  StateFile file_;  // closes first
};

}  // namespace hearth::broker
