#pragma once
// The tables of a store's database, and how it is opened.
//
//   meta   layout: KvLayout::hash in hex; model, identity, block_size, block_bytes, state_group:
//   for
//          people and for verify
//   chunk  one row per stored chunk. first, last: names (chain_hash) of its first and last block;
//          parent: of the block before it, or the root; prefix, checksum: see StoreKey; value: see
//          prefix_value; present: 8 bytes per layer group; tokens: 4 bytes each; data last, so
//          that a walk over the small columns does not touch it. A state (chunk.h): first = last
//   lease  at most one row: the process that writes
//
// Settings as measured: pages of 32 KiB, WAL, synchronous NORMAL (a power cut loses the newest
// chunks and damages none), secure_delete off (deletes are 10 times faster; see wipe), checkpoints
// by hand since they take up to 150 ms.

#include <cstdint>
#include <string>

#include "engine/store/chunk.h"
#include "kernels/database/sqlite.h"

namespace hearth::engine {

inline constexpr int64_t kStoreFormat = 2;                  ///< PRAGMA user_version
inline constexpr int64_t kStoreApplicationId = 0x68727468;  ///< PRAGMA application_id: "hrth"

/// Sets up a connection and makes the tables if the file is new. kCorrupt if the file is of another
/// program, format, model or layout. `name`: for messages.
Result<void> set_up(Database& database, const KvLayout& layout, const std::string& name);

}  // namespace hearth::engine
