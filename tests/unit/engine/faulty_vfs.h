#pragma once
// The platform's VFS of SQLite, with a failure at its Nth file operation, and at all after it until
// told otherwise. One thread.

#include <cstdint>

namespace hearth::tests {

enum class Fault { kIoError, kDiskFull, kShortWrite };

struct FaultyVfs {
  /// Registers it, once for the process; its name for SqliteStoreConfig::vfs.
  static const char* name();
  /// Operation `nth` from now on (0: the next) and `count - 1` behind it fail.
  static void fail_at(int64_t nth, Fault fault, int64_t count);
  static void heal();
  /// Operations since fail_at or heal.
  static int64_t operations();
};

}  // namespace hearth::tests
