#pragma once
// The blocks of a cache, known from its events alone. Fails the test on an event that does not fit
// what went before.

#include <doctest/doctest.h>

#include <cstdint>
#include <set>
#include <span>
#include <tuple>
#include <variant>

#include "engine/kv/cache_events.h"

namespace hearth::tests {

class CacheMirror {
 public:
  using Block = std::tuple<engine::CacheTier, int32_t, uint64_t>;  ///< tier, group, hash

  void take(std::span<const engine::CacheEvent> events, int32_t block_size) {
    for (const engine::CacheEvent& event : events) {
      if (const auto* stored = std::get_if<engine::BlocksStored>(&event)) {
        REQUIRE(!stored->hashes.empty());
        REQUIRE(stored->tokens.size() == stored->hashes.size() * static_cast<size_t>(block_size));
        REQUIRE(stored->scope.empty() == stored->parent.has_value());
        for (const uint64_t hash : stored->hashes) {
          REQUIRE(blocks_.insert({stored->tier, stored->group, hash}).second);
        }
      } else {
        const auto& removed = std::get<engine::BlocksRemoved>(event);
        for (const uint64_t hash : removed.hashes) {
          REQUIRE(blocks_.erase({removed.tier, removed.group, hash}) == 1);
        }
      }
    }
  }
  const std::set<Block>& blocks() const { return blocks_; }
  int32_t count(engine::CacheTier tier, int32_t group) const {
    int32_t out = 0;
    for (const auto& [of, in, hash] : blocks_) out += of == tier && in == group ? 1 : 0;
    return out;
  }

 private:
  std::set<Block> blocks_;
};

}  // namespace hearth::tests
