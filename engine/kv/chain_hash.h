#pragma once
// The names of block chains, in memory and on disk: XXH3-128 over what a block's KV depends on. A
// name finds; who trusts it compares tokens too.

#include <cstdint>
#include <span>
#include <string_view>

namespace hearth::engine {

struct Hash128 {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const Hash128&) const = default;
};

/// Of a chain's root: a text of all that changes KV apart from tokens, the owner's salt included.
Hash128 scope_hash(std::string_view scope);
/// XXH3-128 of the parent's 16 bytes followed by the token ids, 4 bytes each.
Hash128 chain_hash(const Hash128& parent, std::span<const int32_t> tokens);

}  // namespace hearth::engine
