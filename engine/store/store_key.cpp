#include "engine/store/store_key.h"

#include <utility>

#include "engine/store/keyed_hash.h"
#include "kernels/base/secret_file.h"

namespace hearth::engine {
namespace {

/// Version of what is hashed and stored; part of every checksum.
constexpr uint64_t kFormat = 1;

}  // namespace

Result<StoreKey> StoreKey::open(const std::filesystem::path& file) {
  StoreKey key;
  HEARTH_TRY(read_or_make_secret(file, key.secret_));
  return key;
}

std::vector<Hash128> StoreKey::prefixes(const KvLayout& layout, const Chain& chain) const {
  std::vector<Hash128> out;
  const size_t chunk_tokens = int64_t{layout.chunk_blocks()} * layout.block_size;
  KeyedHash hasher(secret_);
  hasher.number(kFormat);
  hasher.hash(chain.root);
  for (size_t begin = 0; begin < chain.tokens.size(); begin += chunk_tokens) {
    out.push_back(hasher.digest());
    if (chain.tokens.size() - begin < chunk_tokens) break;
    hasher.bytes(std::as_bytes(std::span(chain.tokens).subspan(begin, chunk_tokens)));
  }
  return out;
}

struct StoreKey::Check::State {
  KeyedHash hasher;
};

void StoreKey::Check::Free::operator()(State* state) const { delete state; }

void StoreKey::Check::add(std::span<const std::byte> bytes) { state_->hasher.bytes(bytes); }

Hash128 StoreKey::Check::digest() const { return state_->hasher.digest(); }

StoreKey::Check StoreKey::begin_check(const Hash128& layout, const ChunkRow& row,
                                      size_t data_bytes) const {
  Check check;
  check.state_.reset(new Check::State{KeyedHash(secret_)});
  KeyedHash& hasher = check.state_->hasher;
  hasher.number(kFormat);
  for (const Hash128* hash :
       {&layout, &row.root, &row.parent, &row.first, &row.last, &row.prefix}) {
    hasher.hash(*hash);
  }
  hasher.list(std::span(row.owner));
  hasher.number(row.shape.index);
  hasher.number(row.shape.num_blocks);
  hasher.list(std::span(row.shape.present));
  hasher.list(std::span(row.tokens));
  hasher.number(data_bytes);
  return check;
}

Hash128 StoreKey::check(const Hash128& layout, const ChunkRow& row,
                        std::span<const std::byte> data) const {
  Check check = begin_check(layout, row, data.size());
  check.add(data);
  return check.digest();
}

}  // namespace hearth::engine
