#pragma once
// Cached prefixes, in memory and on disk, as the lines of one tree. Plain data: prefixes in memory
// arrive with events, those on disk from `hearth cache ls --json`. Whatever the input, memory is
// bounded and text is safe to show.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/schema/watch.h"
#include "kernels/base/result.h"

namespace hearth::monitor {

inline constexpr size_t kMaxStoredPrefixes = 100'000;
inline constexpr size_t kMaxPrefixLines = 4096;

/// A chunk in the prefix store.
struct StoredPrefix {
  std::string model, owner;
  std::string name, parent;  ///< 32 hexadecimal digits
  int64_t first_token = 0, end_token = 0;
  uint64_t bytes = 0;
  int64_t hits = 0;
  int64_t used_s = 0;          ///< seconds since 1970
  int64_t pinned_until_s = 0;  ///< 0: not pinned
  bool operator==(const StoredPrefix&) const = default;
};

/// Parses the output of `hearth cache ls --json`. kProtocol for anything else.
Result<std::vector<StoredPrefix>> parse_cache_list(std::string_view text);

/// Consecutive tokens without a branch, all held by the same tiers.
struct PrefixLine {
  std::string name;  ///< of its last chunk or block
  std::string run;   ///< its name in `hearth cache`; empty: not on disk
  int depth = 0;     ///< in the tree
  int64_t first_token = 0, end_token = 0;
  uint64_t disk_bytes = 0;  ///< 0: not on disk
  int64_t hits = 0;         ///< on disk, at its end
  int64_t used_s = 0;
  int64_t memory_blocks = 0;  ///< 0: not in memory
  int64_t used_blocks = 0;    ///< of memory_blocks, those used by running sequences
  std::string owner;          ///< empty: unknown
  bool pinned = false;
};

/// `stored` may hold prefixes of all models; only those of `model` count. `now_s`: seconds since
/// 1970. Returns at most kMaxPrefixLines; `left_out` is set to the number of lines beyond that.
std::vector<PrefixLine> prefix_tree(std::span<const StoredPrefix> stored, std::string_view model,
                                    std::span<const ipc::WatchedPrefix> memory, int32_t block_size,
                                    int64_t now_s, size_t* left_out);

}  // namespace hearth::monitor
