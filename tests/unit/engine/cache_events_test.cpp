#include "engine/kv/cache_events.h"

#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "engine/kv/kv_cache.h"
#include "engine/kv/scope_names.h"
#include "tests/cache_mirror.h"
#include "tests/unit/engine/kv_rig.h"

namespace hearth::engine {
namespace {

using tests::CacheMirror;
using Tokens = std::vector<int32_t>;

TEST_CASE("only shared scopes have a public name, unless all are published") {
  const std::string model = "model\nf16\n";
  const auto name = [&](PublishedScopes published, const std::string& salt) {
    return std::string(ScopeNames{published, model.size()}.of(model + salt));
  };
  CHECK(name(PublishedScopes::kNone, "shared\ndocs").empty());
  CHECK(name(PublishedScopes::kShared, "shared\ndocs") == "docs");
  CHECK(name(PublishedScopes::kShared, "uid:1000").empty());
  CHECK(name(PublishedScopes::kShared, "key:shared").empty());
  CHECK(name(PublishedScopes::kShared, "").empty());
  CHECK(name(PublishedScopes::kAll, "shared\ndocs") == "docs");
  CHECK(name(PublishedScopes::kAll, "uid:1000") == "uid:1000");
  CHECK(ScopeNames{PublishedScopes::kAll, 100}.of("short").empty());
  // Computed with an adapter.
  const std::string adapted = std::string(kAdapterScope) + "digest 0x1p+0\n";
  CHECK(name(PublishedScopes::kAll, adapted + "uid:1000").empty());
  CHECK(name(PublishedScopes::kShared, adapted + "shared\ndocs").empty());
}

TEST_CASE("consecutive blocks of a chain are one event, of which each group has its own") {
  CacheEventLog log(CacheTier::kHost);
  const Hash128 a{1, 9}, b{2, 9}, c{3, 9};
  const Tokens one = {1, 2}, two = {3, 4}, three = {5, 6};
  log.stored(0, {.hash = a, .parent = {}, .tokens = one, .scope = "docs"});
  log.stored(1, {.hash = a, .parent = {}, .tokens = one, .scope = "docs"});
  log.stored(0, {.hash = b, .parent = a, .tokens = two, .scope = {}});
  log.stored(1, {.hash = b, .parent = a, .tokens = two, .scope = {}});
  log.removed(1, b);
  log.removed(1, a);
  // After a removal nothing joins what came before it.
  log.stored(0, {.hash = c, .parent = b, .tokens = three, .scope = {}});
  log.removed(0, c);
  log.removed(1, c);
  const std::vector<CacheEvent> events = log.take();
  CHECK(log.empty());
  REQUIRE(events.size() == 6);
  CHECK(std::get<BlocksStored>(events[0]) ==
        BlocksStored{CacheTier::kHost, 0, {1, 2}, {}, {1, 2, 3, 4}, "docs"});
  CHECK(std::get<BlocksStored>(events[1]).group == 1);
  CHECK(std::get<BlocksRemoved>(events[2]) == BlocksRemoved{CacheTier::kHost, 1, {2, 1}});
  CHECK(std::get<BlocksStored>(events[3]) == BlocksStored{CacheTier::kHost, 0, {3}, 2, {5, 6}, ""});
  CHECK(std::get<BlocksRemoved>(events[4]) == BlocksRemoved{CacheTier::kHost, 0, {3}});
  CHECK(std::get<BlocksRemoved>(events[5]) == BlocksRemoved{CacheTier::kHost, 1, {3}});
  // What was taken is not extended either.
  log.stored(0, {.hash = a, .parent = {}, .tokens = one, .scope = "docs"});
  log.take();
  log.stored(0, {.hash = b, .parent = a, .tokens = two, .scope = {}});
  CHECK(std::get<BlocksStored>(log.take().at(0)).parent == 1);
}

TEST_CASE("prefixes of private scopes leave no event; those of shared ones have their tokens") {
  const std::vector<KvGroup> groups = {{.num_blocks = 4}};
  KvCache kv(2, groups);
  CacheEventLog log(CacheTier::kPool);
  kv.publish({PublishedScopes::kShared, 1}, log);
  const Tokens tokens = {7, 8, 9, 10, 11};
  SequenceBlocks own, shared;
  kv.begin(own, "muid:1", tokens, 4);
  compute(kv, own, tokens);
  kv.release(own);
  CHECK(log.empty());
  kv.begin(shared, "mshared\ndocs", tokens, 4);
  compute(kv, shared, tokens);  // evicts one of the others, of which nothing is reported either
  kv.release(shared);
  const std::vector<CacheEvent> events = log.take();
  REQUIRE(events.size() == 1);
  const auto& stored = std::get<BlocksStored>(events[0]);
  CHECK(stored.tokens == Tokens{7, 8, 9, 10});
  CHECK(stored.scope == "docs");
  CHECK_FALSE(stored.parent);
  const NodeId root = kv.index().find_root("mshared\ndocs");
  const NodeId first = kv.index().find_child(root, Tokens{7, 8});
  CHECK(stored.hashes[0] == event_hash(kv.index().hash(first)));
}

/// What the index has of the scopes that begin with "pub".
std::set<CacheMirror::Block> published_blocks(const KvCache& kv) {
  std::set<CacheMirror::Block> out;
  const PrefixIndex& index = kv.index();
  const auto root_of = [&](NodeId node) {
    while (!index.is_root(node)) node = index.parent(node);
    return node;
  };
  std::set<NodeId> published;
  for (int32_t i = 0; i < 3; ++i) {
    published.insert(index.find_root("mshared\n" + std::to_string(i)));
  }
  for (NodeId node = 0; node < index.end_node(); ++node) {
    if (!index.alive(node) || !published.contains(root_of(node))) continue;
    for (int32_t group = 0; group < kv.num_groups(); ++group) {
      if (index.block(node, group) == kNoBlock) continue;
      out.insert({CacheTier::kPool, group, event_hash(index.hash(node))});
    }
  }
  return out;
}

TEST_CASE("a mirror kept from events alone equals the index after each operation") {
  constexpr int32_t kBlock = 4;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto pick = [&](int32_t n) { return static_cast<int32_t>(random() % n); };
    std::vector<KvGroup> groups = {{.num_blocks = 24}};
    if (seed % 2 == 0) groups.push_back({.num_blocks = 16, .window = 10});
    if (seed % 3 == 0) groups.push_back({.num_blocks = 9, .recurrent = true});
    KvCache kv(kBlock, groups);
    CacheEventLog log(CacheTier::kPool);
    kv.publish({PublishedScopes::kShared, 1}, log);
    CacheMirror mirror;
    struct Live {
      SequenceBlocks blocks;
      Tokens tokens;
    };
    std::vector<Live> live;
    size_t most = 0;
    for (int step = 0; step < 300; ++step) {
      const int32_t what = pick(10);
      if (what < 4 && live.size() < 3) {
        Live each;
        for (int32_t i = 0; i < 40; ++i) each.tokens.push_back(i < 12 ? i : pick(2));
        const int32_t salt = pick(5);  // two of them are private
        const std::string scope =
            salt < 3 ? "mshared\n" + std::to_string(salt) : "muid:" + std::to_string(salt);
        kv.begin(each.blocks, scope, each.tokens, 39);
        live.push_back(std::move(each));
      } else if (what < 8 && !live.empty()) {
        Live& each = live[static_cast<size_t>(pick(static_cast<int32_t>(live.size())))];
        const int32_t end = std::min(40, each.blocks.num_tokens + 1 + pick(9));
        std::vector<BlockCopy> copies;
        if (end > each.blocks.num_tokens && kv.reserve(each.blocks, end, copies)) {
          kv.store(each.blocks, each.tokens, end);
        }
      } else if (!live.empty()) {
        kv.release(live.front().blocks);
        live.erase(live.begin());
      }
      mirror.take(log.take(), kBlock);
      REQUIRE(mirror.blocks() == published_blocks(kv));
      most = std::max(most, mirror.blocks().size());
    }
    CHECK(most >= 8);
    for (Live& each : live) kv.release(each.blocks);
  }
}

}  // namespace
}  // namespace hearth::engine
