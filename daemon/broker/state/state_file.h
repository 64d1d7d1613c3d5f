#pragma once
// A SQLite file with private texts in the daemon's state folder. Opened when it is first used; used
// by one thread at a time, which may wait for the disk.
//
// Settings: WAL with synchronous NORMAL (a power cut loses the newest rows and damages none);
// secure_delete, and the log is emptied after rows are removed, because the texts are private.
//
// A file that is damaged or of another program is moved aside (".damaged"), and an empty one takes
// its place.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "kernels/base/result.h"
#include "kernels/database/sqlite.h"

namespace hearth::broker {

/// A text as the bytes of a cell.
inline std::span<const std::byte> blob_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

struct StateFileFormat {
  std::string_view what;       ///< in the names of log lines: "responses"
  int64_t application_id = 0;  ///< PRAGMA application_id
  int64_t version = 0;         ///< PRAGMA user_version
  const char* schema = "";     ///< statements that make the tables
};

class StateFile {
 public:
  struct Users {
    /// Prepares what is used with the open database.
    std::function<Result<void>(Database&)> opened;
    /// Drops it; the database closes next.
    std::function<void()> closing;
  };
  /// `vfs`: SQLite's; null: the platform's.
  StateFile(std::filesystem::path file, const StateFileFormat& format, const char* vfs,
            Users users);
  ~StateFile();
  StateFile(const StateFile&) = delete;
  StateFile& operator=(const StateFile&) = delete;

  /// Removes such a file and all that belongs to it. False: nothing was there.
  static bool remove(const std::filesystem::path& file);

  /// Runs `work` with the file open. If the file proves damaged, moves it aside and runs `work`
  /// once more, on an empty one. An error with a field answers a question; any other closes the
  /// file, which the next call opens again.
  template <class T>
  Result<T> use(const std::function<Result<T>(Database&)>& work) {
    for (bool again = true;; again = false) {
      Result<void> opened = open();
      Result<T> result = opened.ok() ? work(*database_) : Result<T>(opened.take_error());
      if (result.ok()) return result;
      if (result.error().code == ErrorCode::kCorrupt && again) {
        HEARTH_TRY(put_aside_damaged(result.error()));
        continue;
      }
      if (result.error().field.empty()) close();
      return result;
    }
  }

  /// Inside of use(): notes that rows were removed, whose texts may still be in the log.
  void note_removed() { removed_ = true; }
  /// Inside of use(): overwrites what removed rows have left in the log, if any were removed.
  Result<void> forget_removed();
  /// Removes a file that was moved aside, if it was last changed by then. It has texts, too.
  void forget_damaged(int64_t by_s);

 private:
  Result<void> open();
  void close();
  Result<void> put_aside();
  Result<void> put_aside_damaged(const Error& error);

  const std::filesystem::path file_;
  const StateFileFormat format_;
  const char* const vfs_;
  const Users users_;
  std::optional<Database> database_;
  bool removed_ = false;
};

}  // namespace hearth::broker
