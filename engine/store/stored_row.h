#pragma once
// A chunk's row as a database gives it back: checked against the layout before anything is done
// with its numbers. And the names of databases and blocks.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "engine/store/sqlite.h"
#include "engine/store/store_key.h"

namespace hearth::engine {

/// "NAME-0123456789abcdef.db": the model's name and the layout's hash.
std::string store_file_name(const KvLayout& layout);
/// Removes a database and its journals; its absence is no error.
void remove_store_file(const std::filesystem::path& file);
/// Where put_aside moves `file`: the same name with ".damaged" at its end.
std::filesystem::path aside_name(const std::filesystem::path& file);
/// Moves away what stands in the place of a file of the store, whatever it is; what was put aside
/// before is removed. kIo.
Result<void> put_aside(const std::filesystem::path& file);

std::string to_hex(const Hash128& hash);
std::span<const std::byte> hash_bytes(const Hash128& hash);
/// Zero where it has not 16 bytes.
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
/// Checks counts and sizes against the layout: nothing here can overflow afterwards.
Result<StoredRow> row_from(const Statement& statement, const KvLayout& layout);

}  // namespace hearth::engine
