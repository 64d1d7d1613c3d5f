#pragma once
// Looking after databases of prefixes from outside, beside a worker that may have them open: what
// is in them, removing, verifying, compacting. Needs no model.

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
};

struct VerifyReport {
  uint64_t good = 0;
  uint64_t bad = 0;  ///< removed
};

class StoreAdmin {
 public:
  /// The databases of a folder, by name. kForbidden where it cannot be read.
  static Result<std::vector<std::filesystem::path>> files(const std::filesystem::path& folder);
  /// kCorrupt where it is no database of this version. `busy_ms`: how long others are waited for.
  static Result<StoreAdmin> open(const std::filesystem::path& file, int busy_ms = 5'000);

  const KvLayout& layout() const { return layout_; }
  const std::filesystem::path& file() const { return file_; }
  /// Bytes of the file and its journals.
  uint64_t file_bytes() const;
  Result<std::vector<StoredEntry>> entries();
  /// Removes rows. With `wipe` no byte of them stays in the database and its log: it is written
  /// anew. kBusy where another process reads just now, so that the log cannot be emptied.
  Result<void> remove(const std::vector<int64_t>& rows, bool wipe);
  /// Keeps rows from eviction until then (seconds since 1970; 0: lets them go again). An owner's
  /// pins are bounded: returns how many rows were left out for that.
  Result<uint64_t> pin(const std::vector<int64_t>& rows, int64_t until_s, int64_t now_s,
                       uint64_t owner_pinned_bytes);
  /// The first tokens of a row's chunk, at most so many. For people: not verified.
  Result<std::vector<int32_t>> first_tokens(int64_t row, size_t most);
  /// Gives back what was freed.
  Result<void> compact();
  /// Reads everything; removes what does not agree with its checksum.
  Result<VerifyReport> verify();

 private:
  std::filesystem::path file_;
  Database database_;
  KvLayout layout_;
};

}  // namespace hearth::engine
