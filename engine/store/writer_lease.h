#pragma once
// Who writes into a database: one process at a time, by a row that says who and since when. A lease
// lapses when it is not renewed, when its process is gone, or with the boot it was taken in.

#include <cstdint>
#include <string>

#include "engine/store/sqlite.h"

namespace hearth::engine {

class WriterLease {
 public:
  WriterLease();

  /// With each connection, before anything else here; `close` before that connection ends.
  Result<void> open(Database& database);
  void close();

  /// Takes or renews it, at most every two seconds; true: it is ours. Begins a transaction.
  Result<bool> take(int64_t now_ms);
  /// Inside a transaction of the caller: a writer that slept past its lease finds out here.
  Result<bool> renew(int64_t now_ms);
  /// The caller's transaction was committed.
  void renewed(int64_t now_ms) { renewed_ms_ = now_ms; }
  bool due(int64_t now_ms) const;
  bool held() const { return held_; }
  void lose() { held_ = false; }
  void give_back();

 private:
  const std::string token_;
  Database* database_ = nullptr;
  Statement renew_;
  bool held_ = false;
  int64_t renewed_ms_ = 0;
};

}  // namespace hearth::engine
