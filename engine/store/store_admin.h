#pragma once
// Maintenance of prefix databases, also while a worker has them open: listing, removing, verifying,
// compacting. Needs no model.

#include <filesystem>
#include <string>
#include <vector>

#include "engine/store/sqlite_store.h"
#include "engine/store/stored_row.h"

namespace hearth::engine {

/// One stored chunk, without its bytes.
struct StoredEntry {
  int64_t row = 0;
  std::string owner;
  Hash128 root, parent, last;
  int32_t index = 0;
  int32_t num_blocks = 0;
  uint64_t bytes = 0;
  int64_t used_s = 0;  ///< seconds since 1970
  int64_t hits = 0;
  int64_t pinned_until_s = 0;
  bool state = false;  ///< of recurrent layers, at the end of the last block
};

struct VerifyReport {
  uint64_t good = 0;
  uint64_t bad = 0;  ///< removed
};

class StoreAdmin {
 public:
  /// The databases of a folder, by name. kForbidden if it cannot be read.
  static Result<std::vector<std::filesystem::path>> files(const std::filesystem::path& folder);
  /// kCorrupt if it is not a database of this version. `busy_ms`: how long to wait for other
  /// processes.
  static Result<StoreAdmin> open(const std::filesystem::path& file, int busy_ms = 5'000);

  const KvLayout& layout() const { return layout_; }
  const std::filesystem::path& file() const { return file_; }
  /// Bytes of the file and its journals.
  uint64_t file_bytes() const;
  Result<std::vector<StoredEntry>> entries();
  /// Removes rows. With `wipe` the database is rewritten, so that no byte of them stays in it or
  /// its log. kBusy if other processes use it for longer than `busy_ms`, so that the log cannot be
  /// emptied.
  Result<void> remove(const std::vector<int64_t>& rows, bool wipe);
  /// Pins rows until then (seconds since 1970; 0: unpins them). Returns how many rows were not
  /// pinned because of their owner's bound.
  Result<uint64_t> pin(const std::vector<int64_t>& rows, int64_t until_s, int64_t now_s,
                       uint64_t owner_pinned_bytes);
  /// The first tokens of a row's chunk, at most that many. For display: not verified.
  Result<std::vector<int32_t>> first_tokens(int64_t row, size_t most);
  /// Returns freed space to the file system. kBusy as for remove().
  Result<void> compact();
  /// Reads all chunks and removes those that do not match their checksum.
  Result<VerifyReport> verify();

 private:
  std::filesystem::path file_;
  int busy_ms_ = 0;
  Database database_;
  KvLayout layout_;
};

}  // namespace hearth::engine
