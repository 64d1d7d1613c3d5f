#pragma once
// The names of block chains, in memory and on disk: XXH3-128 over everything a block's KV depends
// on. A name only finds candidates; the caller compares the tokens, too.

#include <cstdint>
#include <span>
#include <string_view>

namespace hearth::engine {

struct Hash128 {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const Hash128&) const = default;
};

/// Of a chain's root: over a text of everything besides tokens that changes KV, the owner's salt
/// included.
Hash128 scope_hash(std::string_view scope);
/// XXH3-128 of the parent's 16 bytes followed by the token ids, 4 bytes each.
Hash128 chain_hash(const Hash128& parent, std::span<const int32_t> tokens);

}  // namespace hearth::engine
