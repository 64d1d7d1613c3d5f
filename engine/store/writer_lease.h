#pragma once
// The right to write into a database: one process at a time, by a row with its identity and the
// time of its last renewal. A lease lapses when it is not renewed, when its process is gone, or
// after a reboot.

#include <cstdint>
#include <string>

#include "kernels/database/sqlite.h"

namespace hearth::engine {

class WriterLease {
 public:
  WriterLease();

  /// Call first for each connection, and `close` before the connection ends.
  Result<void> open(Database& database);
  void close();

  /// Takes or renews the lease, at most every two seconds; true: this process holds it. Begins a
  /// transaction.
  Result<bool> take(int64_t now_ms);
  /// Called inside a transaction: detects that another writer took the lease meanwhile.
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
