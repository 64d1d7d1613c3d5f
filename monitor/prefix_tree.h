#pragma once
// The prefixes that are kept, in memory and on disk, as the lines of one tree. Plain data: what is
// in memory comes with events, what is on disk from `hearth cache ls --json`. Whatever that holds,
// memory is bounded and text fit to be shown.

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

/// A chunk of the store.
struct StoredPrefix {
  std::string model, owner;
  std::string name, parent;  ///< 32 hexadecimal digits
  int64_t first_token = 0, end_token = 0;
  uint64_t bytes = 0;
  int64_t hits = 0;
  int64_t used_s = 0;          ///< seconds since 1970
  int64_t pinned_until_s = 0;  ///< 0: it is not
  bool operator==(const StoredPrefix&) const = default;
};

/// What `hearth cache ls --json` prints. kProtocol where it is something else.
Result<std::vector<StoredPrefix>> parse_cache_list(std::string_view text);

/// Tokens that follow one another, with nothing branching off and the same tiers holding them.
struct PrefixLine {
  std::string name;  ///< of its end
  std::string run;   ///< what the store's verbs call it; empty: not on disk
  int depth = 0;     ///< of the tree
  int64_t first_token = 0, end_token = 0;
  uint64_t disk_bytes = 0;  ///< 0: not on disk
  int64_t hits = 0;         ///< on disk, of the end
  int64_t used_s = 0;
  int64_t memory_blocks = 0;  ///< 0: not in memory
  int64_t used_blocks = 0;    ///< of those, by running sequences
  std::string owner;          ///< empty: not known
  bool pinned = false;
};

/// `stored`: of all models, those of `model` count. `now_s`: seconds since 1970. At most
/// kMaxPrefixLines, and `left_out` the number of those beyond.
std::vector<PrefixLine> prefix_tree(std::span<const StoredPrefix> stored, std::string_view model,
                                    std::span<const ipc::WatchedPrefix> memory, int32_t block_size,
                                    int64_t now_s, size_t* left_out);

}  // namespace hearth::monitor
