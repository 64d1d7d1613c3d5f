#pragma once
// SQLite's VFS of the platform, with a failure at its Nth file operation, and at all later ones
// until healed; or with a power cut before its Nth operation. One thread.

#include <cstdint>
#include <filesystem>

namespace hearth::tests {

enum class Fault { kIoError, kDiskFull, kShortWrite };

struct FaultyVfs {
  /// Registers it once for the process; returns its name for SqliteStoreConfig::vfs.
  static const char* name();
  /// Operation `nth` from now on (0: the next) and the `count - 1` after it fail.
  static void fail_at(int64_t nth, Fault fault, int64_t count);
  static void heal();
  /// Before operation `nth` from now on, `to` becomes a copy of the folder `from` as a machine
  /// could find it after losing power then: each write since a file's last sync is there, is not
  /// there, or is there in part. Files written without SQLite are unchanged. Call while no file is
  /// open.
  static void cut_at(int64_t nth, uint64_t seed, const std::filesystem::path& from,
                     const std::filesystem::path& to);
  /// Operations since fail_at, heal or cut_at.
  static int64_t operations();
};

}  // namespace hearth::tests
