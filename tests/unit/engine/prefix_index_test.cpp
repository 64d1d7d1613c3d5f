#include "engine/kv/prefix_index.h"

#include <doctest/doctest.h>

#include <vector>

namespace hearth::engine {
namespace {

const std::vector<int32_t> kPools = {8, 8};
using Tokens = std::vector<int32_t>;

TEST_CASE("a chain is found by its tokens, under its own root only") {
  PrefixIndex index(4, kPools);
  CHECK(index.find_root("a") == kNoNode);
  const NodeId root = index.pin_root("a");
  const NodeId first = index.find_or_add_child(root, Tokens{1, 2, 3, 4});
  index.attach(first, 0, 5);
  const NodeId second = index.find_or_add_child(first, Tokens{1, 2, 3, 4});
  index.attach(second, 0, 6);
  CHECK(first != second);  // equal tokens at another depth
  CHECK(index.find_or_add_child(root, Tokens{1, 2, 3, 4}) == first);
  CHECK(index.find_child(root, Tokens{1, 2, 3, 4}) == first);
  CHECK(index.find_child(first, Tokens{1, 2, 3, 4}) == second);
  CHECK(index.find_child(root, Tokens{1, 2, 3, 5}) == kNoNode);
  CHECK(index.find_child(second, Tokens{1, 2, 3, 4}) == kNoNode);
  CHECK(index.block(first, 0) == 5);
  CHECK(index.block(first, 1) == kNoBlock);
  CHECK(index.node_of(0, 6) == second);
  const NodeId other = index.pin_root("b");
  CHECK(other != root);
  CHECK(index.find_child(other, Tokens{1, 2, 3, 4}) == kNoNode);
  CHECK_FALSE(index.hash(other) == index.hash(root));
  index.check_integrity();
}

TEST_CASE("a node lives while a block, a child or a cursor needs it") {
  PrefixIndex index(2, kPools);
  const NodeId root = index.pin_root("a");
  const NodeId first = index.find_or_add_child(root, Tokens{1, 2});
  index.attach(first, 0, 0);
  index.attach(first, 1, 7);
  const NodeId second = index.find_or_add_child(first, Tokens{3, 4});
  index.attach(second, 1, 1);
  index.pin(second);
  CHECK(index.num_nodes() == 3);
  CHECK(index.detach(0, 0) == first);
  index.prune(first);
  index.detach(1, 7);
  index.prune(first);
  CHECK(index.num_nodes() == 3);  // its child needs it for comparison
  CHECK(index.find_child(root, Tokens{1, 2}) == first);
  index.detach(1, 1);
  index.prune(second);
  CHECK(index.num_nodes() == 3);  // pinned
  index.check_integrity();
  index.unpin(second);
  CHECK(index.num_nodes() == 1);
  index.unpin(root);
  CHECK(index.num_nodes() == 0);
  CHECK(index.find_root("a") == kNoNode);
  index.check_integrity();
}

TEST_CASE("the hash of a block depends on every token and on all before it") {
  const Hash128 parent{1, 2};
  const Hash128 base = chain_hash(parent, Tokens{1, 2, 3, 4});
  CHECK(base == chain_hash(parent, Tokens{1, 2, 3, 4}));
  CHECK_FALSE(base == chain_hash(parent, Tokens{1, 2, 3, 5}));
  CHECK_FALSE(base == chain_hash(parent, Tokens{2, 1, 3, 4}));
  CHECK_FALSE(base == chain_hash({1, 3}, Tokens{1, 2, 3, 4}));
  CHECK_FALSE(base == chain_hash({2, 2}, Tokens{1, 2, 3, 4}));
  const Tokens large(1024, 7);  // block sizes up to this
  CHECK_FALSE(chain_hash(parent, large) == chain_hash({2, 2}, large));
}

}  // namespace
}  // namespace hearth::engine
