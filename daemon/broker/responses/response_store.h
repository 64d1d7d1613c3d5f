#pragma once
// Answers of the responses API in a SQLite database, each with its request's input, under the user
// of that request. Used by one thread at a time, which may wait for the disk.
//
//   response  one row per answer. seq: ascending, so the smallest is the oldest; previous: id of
//             the answer that it continues, or ""; bytes: what the row counts against the bounds;
//             input, output: JSON lists; head: the answer's JSON without its output
//
// A power cut loses the newest answers: the next turn of a conversation waits for the write, so it
// does not wait for the disk (state_file.h).

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "daemon/broker/state/state_file.h"
#include "daemon/http/kept_response.h"
#include "kernels/base/result.h"

namespace hearth::broker {

struct ResponseStoreConfig {
  std::filesystem::path file;
  int64_t keep_s = 0;              ///< since the answer was made; above 0
  int64_t bytes = 0;               ///< of all rows
  int64_t owner_bytes = 0;         ///< of one owner's rows
  std::function<int64_t()> now_s;  ///< seconds since 1970
  const char* vfs = nullptr;       ///< SQLite's; null: the platform's
};

class ResponseStore {
 public:
  explicit ResponseStore(ResponseStoreConfig config);
  ~ResponseStore();
  ResponseStore(const ResponseStore&) = delete;
  ResponseStore& operator=(const ResponseStore&) = delete;

  /// Writes an answer, then removes the oldest ones beyond the bounds: first of this owner, then of
  /// the owner with the most bytes. kTooLarge: it exceeds the owner's bound alone, or the disk is
  /// full.
  Result<void> keep(uint32_t owner, const http::KeptResponse& response);
  /// kNotFound if the owner has no such answer, or it has expired; kTooLarge if a conversation has
  /// too many answers or bytes. The error's field is previous_response_id for a conversation, else
  /// response_id.
  Result<std::string> ask(uint32_t owner, const http::KeptQuery& query);
  /// Removes expired answers, and overwrites what removed ones have left.
  Result<void> sweep();

  int64_t entries() const { return entries_; }
  int64_t bytes() const { return bytes_; }

 private:
  struct Statements;
  Result<void> prepare(Database& db);
  void drop();
  Result<void> insert(Database& db, uint32_t owner, const http::KeptResponse& response);
  Result<std::string> answer(uint32_t owner, const http::KeptQuery& query);
  Result<std::string> response(uint32_t owner, const std::string& id);
  Result<std::string> items(uint32_t owner, const http::KeptQuery& query);
  Result<void> remove_one(uint32_t owner, const std::string& id);
  Result<void> expire(Database& db);
  Result<void> make_room(uint32_t owner);
  Result<bool> remove_oldest(int64_t owner);
  Result<void> remove_row(int64_t owner, int64_t seq, int64_t bytes);
  int64_t oldest_s() const { return config_.now_s() - config_.keep_s; }

  const ResponseStoreConfig config_;
  std::unique_ptr<Statements> statements_;
  std::map<int64_t, int64_t> bytes_of_;  // by owner
  int64_t entries_ = 0;
  int64_t bytes_ = 0;
  StateFile file_;  // closes first
};

}  // namespace hearth::broker
