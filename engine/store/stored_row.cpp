#include "engine/store/stored_row.h"

#include <fmt/core.h>

#include <cstring>
#include <system_error>
#include <utility>

#include "kernels/base/log.h"
#include "kernels/base/numbers.h"

namespace hearth::engine {
namespace fs = std::filesystem;

std::string to_hex(const Hash128& hash) {
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

std::span<const std::byte> hash_bytes(const Hash128& hash) {
  static_assert(sizeof(Hash128) == 16);
  return std::as_bytes(std::span(&hash, 1));
}

Hash128 hash_from(std::span<const std::byte> bytes) {
  Hash128 out;
  if (bytes.size() == sizeof out) std::memcpy(&out, bytes.data(), sizeof out);
  return out;
}

Result<StoredRow> row_from(const Statement& statement, const KvLayout& layout) {
  StoredRow out;
  ChunkRow& row = out.row;
  row.id = statement.integer(0);
  row.owner = statement.text(1);
  row.root = hash_from(statement.blob(2));
  row.parent = hash_from(statement.blob(3));
  row.first = hash_from(statement.blob(4));
  row.last = hash_from(statement.blob(5));
  row.prefix = hash_from(statement.blob(6));
  const int64_t index = statement.integer(7);
  const int64_t num_blocks = statement.integer(8);
  const std::span<const std::byte> present = statement.blob(9);
  const std::span<const std::byte> tokens = statement.blob(10);
  out.checksum = hash_from(statement.blob(11));
  out.data_bytes = statement.integer(12);

  const auto bad = [&](const std::string& what) {
    return Error::corrupt(fmt::format("row {}: {}", row.id, what));
  };
  if (num_blocks < 1 || num_blocks > layout.chunk_blocks()) {
    return bad(fmt::format("{} blocks, want 1 to {}", num_blocks, layout.chunk_blocks()));
  }
  constexpr int64_t kMaxIndex = 1 << 24;
  if (index < 0 || index > kMaxIndex) return bad(fmt::format("chunk {}", index));
  row.shape.index = narrow<int32_t>(index);
  row.shape.num_blocks = narrow<int32_t>(num_blocks);
  if (present.size() != layout.num_groups() * sizeof(uint64_t)) {
    return bad(fmt::format("{} bytes of masks, want {}", present.size(),
                           layout.num_groups() * sizeof(uint64_t)));
  }
  row.shape.present.resize(layout.num_groups());
  std::memcpy(row.shape.present.data(), present.data(), present.size());
  for (const uint64_t mask : row.shape.present) {
    if ((mask & ~low_bits(row.shape.num_blocks)) != 0) return bad("a mask beyond its blocks");
  }
  const size_t num_tokens = num_blocks * layout.block_size;
  if (tokens.size() != num_tokens * sizeof(int32_t)) {
    return bad(
        fmt::format("{} bytes of tokens, want {}", tokens.size(), num_tokens * sizeof(int32_t)));
  }
  row.tokens.resize(num_tokens);
  std::memcpy(row.tokens.data(), tokens.data(), tokens.size());
  const uint64_t wanted = row.shape.data_bytes(layout);
  if (out.data_bytes != wanted) {
    return bad(fmt::format("{} bytes of KV, want {}", out.data_bytes, wanted));
  }
  return out;
}

std::string store_file_name(const KvLayout& layout) {
  std::string name;
  for (const char c : layout.model.substr(0, 64)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || (c == '.' && !name.empty());
    name += plain ? c : '_';
  }
  return fmt::format("{}-{:016x}.db", name.empty() ? "model" : name, layout.hash().low);
}

void remove_store_file(const fs::path& file) {
  std::error_code ignored;
  for (const char* suffix : {"", "-wal", "-shm", "-journal"}) {
    fs::remove(fs::path(file.string() + suffix), ignored);
  }
}

fs::path aside_name(const fs::path& file) { return file.string() + ".damaged"; }

Result<void> put_aside(const fs::path& file) {
  std::error_code problem;
  const fs::path aside = aside_name(file);
  fs::remove_all(aside, problem);
  fs::rename(file, aside, problem);
  if (problem) {
    return Error::io(fmt::format("{}: is damaged and cannot be moved away: {}",
                                 file.filename().string(), problem.message()));
  }
  log_warn("prefix_store", "put_aside=\"{}\"", aside.string());
  return {};
}

int32_t common_blocks(const ChunkRow& row, const NamedChain& chain, const KvLayout& layout,
                      int32_t max_blocks) {
  const int32_t first = row.shape.index * layout.chunk_blocks();
  const int32_t count = std::min(row.shape.num_blocks, max_blocks - first);
  const size_t block_size = layout.block_size;
  int32_t common = 0;
  for (; common < count; ++common) {
    const auto mine =
        std::span(chain.chain.tokens).subspan((first + common) * block_size, block_size);
    const auto theirs = std::span(row.tokens).subspan(common * block_size, block_size);
    if (!std::ranges::equal(mine, theirs)) break;
  }
  return common;
}

}  // namespace hearth::engine
