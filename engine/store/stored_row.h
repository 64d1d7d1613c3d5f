#pragma once
// A chunk's row as read from a database, checked against the layout before any of its numbers is
// used. Also the file names of databases and the names of blocks.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "engine/store/store_key.h"
#include "kernels/database/sqlite.h"

namespace hearth::engine {

/// "NAME-0123456789abcdef.db": the model's name and the layout's hash.
std::string store_file_name(const KvLayout& layout);
/// Removes a database and its journals, if they exist.
void remove_store_file(const std::filesystem::path& file);
/// The path to which put_aside moves `file`: its name with ".damaged" appended.
std::filesystem::path aside_name(const std::filesystem::path& file);
/// Moves whatever is at the path of a file of the store aside, replacing what was moved before.
/// kIo.
Result<void> put_aside(const std::filesystem::path& file);

std::string to_hex(const Hash128& hash);
std::span<const std::byte> hash_bytes(const Hash128& hash);
/// Zero unless it has 16 bytes.
Hash128 hash_from(std::span<const std::byte> bytes);
/// All columns of a chunk row but `data`, for row_from.
inline constexpr std::string_view kRowColumns =
    "id, owner, root, parent, first, last, prefix, idx, num_blocks, present, tokens, checksum, "
    "length(data)";
struct StoredRow {
  ChunkRow row;
  Hash128 checksum;
  uint64_t data_bytes = 0;
};
/// Checks counts and sizes against the layout, so that nothing can overflow afterwards.
Result<StoredRow> row_from(const Statement& statement, const KvLayout& layout);

/// Blocks at the front of the row whose tokens are the chain's, up to `max_blocks` of the chain.
int32_t common_blocks(const ChunkRow& row, const NamedChain& chain, const KvLayout& layout,
                      int32_t max_blocks);

}  // namespace hearth::engine
