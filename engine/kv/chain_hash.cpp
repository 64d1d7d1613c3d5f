#include "engine/kv/chain_hash.h"

#include <algorithm>
#include <cstring>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace hearth::engine {
namespace {

Hash128 to_hash(const XXH128_hash_t& hash) { return {hash.low64, hash.high64}; }

}  // namespace

Hash128 scope_hash(std::string_view scope) {
  return to_hash(XXH3_128bits(scope.data(), scope.size()));
}

Hash128 chain_hash(const Hash128& parent, std::span<const int32_t> tokens) {
  // XXH3 takes 64 bits of seed and the parent is 128, so it is hashed before the tokens.
  constexpr size_t kStackTokens = 256;
  int32_t stack[4 + kStackTokens];
  std::vector<int32_t> heap;
  int32_t* bytes = stack;
  if (tokens.size() > kStackTokens) {
    heap.resize(4 + tokens.size());
    bytes = heap.data();
  }
  std::memcpy(bytes, &parent.low, 8);
  std::memcpy(bytes + 2, &parent.high, 8);
  std::copy(tokens.begin(), tokens.end(), bytes + 4);
  return to_hash(XXH3_128bits(bytes, (4 + tokens.size()) * sizeof(int32_t)));
}

}  // namespace hearth::engine
