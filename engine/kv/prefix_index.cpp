#include "engine/kv/prefix_index.h"

#include <algorithm>
#include <utility>

#include "engine/kv/cache_events.h"
#include "kernels/base/check.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {

PrefixIndex::PrefixIndex(int32_t block_size, std::span<const int32_t> num_blocks)
    : block_size_(block_size), num_groups_(num_blocks.size()) {
  for (const int32_t count : num_blocks) {
    node_of_block_.emplace_back(count, kNoNode);
  }
}

void PrefixIndex::publish(const ScopeNames& names, CacheEventLog& log) {
  HEARTH_CHECK(num_nodes_ == 0, "nodes={}", num_nodes_);
  names_ = names;
  log_ = &log;
}

const PrefixIndex::Node& PrefixIndex::at(NodeId node) const {
  HEARTH_CHECK(node >= 0 && node < end_node() && nodes_[node].alive, "node={}", node);
  return nodes_[node];
}

PrefixIndex::Node& PrefixIndex::at(NodeId node) {
  return const_cast<Node&>(static_cast<const PrefixIndex*>(this)->at(node));
}

std::span<const int32_t> PrefixIndex::tokens(NodeId node) const {
  if (at(node).is_root) return {};
  return {tokens_.data() + node * block_size_, block_size_};
}

int32_t* PrefixIndex::blocks_of(NodeId node) { return blocks_.data() + node * num_groups_; }

int32_t PrefixIndex::block(NodeId node, int32_t group) const {
  HEARTH_CHECK(at(node).alive);
  return blocks_[node * num_groups_ + group];
}

NodeId PrefixIndex::node_of(int32_t group, int32_t block) const {
  return node_of_block_[group][block];
}

NodeId PrefixIndex::take_node() {
  if (unused_.empty()) {
    unused_.push_back(narrow<NodeId>(nodes_.size()));
    nodes_.emplace_back();
    tokens_.resize(tokens_.size() + block_size_);
    blocks_.resize(blocks_.size() + num_groups_);
  }
  const NodeId node = unused_.back();
  unused_.pop_back();
  nodes_[node] = Node{};
  nodes_[node].alive = true;
  std::fill_n(blocks_of(node), num_groups_, kNoBlock);
  ++num_nodes_;
  return node;
}

NodeId PrefixIndex::find_root(std::string_view scope) const {
  const auto found = roots_.find(std::string(scope));
  return found == roots_.end() ? kNoNode : found->second;
}

NodeId PrefixIndex::pin_root(std::string_view scope) {
  NodeId root = find_root(scope);
  if (root == kNoNode) {
    root = take_node();
    at(root).is_root = true;
    at(root).hash = scope_hash(scope);
    const auto emptiest = std::ranges::min_element(roots_of_list_);
    ++*emptiest;
    at(root).owner_list = static_cast<uint8_t>(emptiest - roots_of_list_.begin());
    roots_.emplace(scope, root);
    if (const std::string_view name = names_.of(scope); !name.empty()) {
      at(root).published = true;
      published_roots_.emplace(root, name);
    }
  }
  pin(root);
  return root;
}

NodeId PrefixIndex::find(const Hash128& hash) const {
  const auto found = by_hash_.find(hash);
  return found == by_hash_.end() ? kNoNode : found->second;
}

NodeId PrefixIndex::find_child(NodeId parent, std::span<const int32_t> tokens) const {
  const auto found = by_hash_.find(chain_hash(at(parent).hash, tokens));
  if (found == by_hash_.end()) return kNoNode;
  const NodeId node = found->second;
  if (at(node).parent != parent || !std::ranges::equal(this->tokens(node), tokens)) return kNoNode;
  return node;
}

NodeId PrefixIndex::find_or_add_child(NodeId parent, std::span<const int32_t> tokens) {
  HEARTH_CHECK(tokens.size() == block_size_, "{} tokens", tokens.size());
  if (const NodeId found = find_child(parent, tokens); found != kNoNode) return found;
  const Hash128 hash = chain_hash(at(parent).hash, tokens);
  if (by_hash_.contains(hash)) return kNoNode;
  const NodeId node = take_node();
  at(node).hash = hash;
  at(node).parent = parent;
  at(node).owner_list = at(parent).owner_list;
  at(node).published = at(parent).published;
  at(node).depth = at(parent).depth + 1;
  ++at(parent).num_children;
  std::copy(tokens.begin(), tokens.end(), tokens_.begin() + (node * block_size_));
  by_hash_.emplace(hash, node);
  return node;
}

void PrefixIndex::pin(NodeId node) { ++at(node).pins; }

NodeId PrefixIndex::unpin(NodeId node) {
  HEARTH_CHECK(at(node).pins > 0, "node={}", node);
  --at(node).pins;
  return prune(node);
}

bool PrefixIndex::has(NodeId node, const Hash128& hash) const {
  const size_t i = node;
  return node >= 0 && i < nodes_.size() && nodes_[i].alive && nodes_[i].hash == hash;
}

void PrefixIndex::clear_stored() {
  for (Node& node : nodes_) node.stored = node.state_stored = false;
}

void PrefixIndex::attach(NodeId node, int32_t group, int32_t block) {
  int32_t& slot = blocks_of(node)[group];
  NodeId& owner = node_of_block_[group][block];
  HEARTH_CHECK(slot == kNoBlock && owner == kNoNode && !at(node).is_root,
               "node {} group {} has block {}, block {} has node {}", node, group, slot, block,
               owner);
  slot = block;
  owner = node;
  ++at(node).num_attached;
  if (at(node).published) note_attached(node, group);
}

void PrefixIndex::note_attached(NodeId node, int32_t group) {
  const NodeId parent = at(node).parent;
  CacheEventLog::Block block{
      .hash = at(node).hash, .parent = {}, .tokens = tokens(node), .scope = {}};
  if (is_root(parent)) {
    block.scope = published_roots_.at(parent);
  } else {
    block.parent = at(parent).hash;
  }
  log_->stored(group, block);
}

NodeId PrefixIndex::detach(int32_t group, int32_t block) {
  NodeId& owner = node_of_block_[group][block];
  const NodeId node = owner;
  HEARTH_CHECK(node != kNoNode, "block {} of group {} is attached nowhere", block, group);
  blocks_of(node)[group] = kNoBlock;
  owner = kNoNode;
  --at(node).num_attached;
  if (at(node).published) log_->removed(group, at(node).hash);
  return node;
}

NodeId PrefixIndex::prune(NodeId node) {
  bool child_gone = false;
  while (node != kNoNode) {
    Node& n = at(node);
    if (n.num_children > 0 || n.pins > 0 || n.num_attached > 0) {
      return child_gone && n.num_children == 0 ? node : kNoNode;
    }
    const NodeId parent = n.parent;
    if (n.is_root) {
      --roots_of_list_[n.owner_list];
      published_roots_.erase(node);
      std::erase_if(roots_, [node](const auto& entry) { return entry.second == node; });
    } else {
      by_hash_.erase(n.hash);
      --at(parent).num_children;
    }
    n = Node{};
    unused_.push_back(node);
    --num_nodes_;
    child_gone = true;
    node = parent;
  }
  return kNoNode;
}

void PrefixIndex::check_integrity() const {
  std::vector<int32_t> children(nodes_.size(), 0);
  int32_t alive = 0;
  int32_t roots = 0;
  size_t attached = 0;
  for (NodeId node = 0; node < end_node(); ++node) {
    const Node& n = nodes_[node];
    if (!n.alive) continue;
    ++alive;
    HEARTH_CHECK(n.num_children > 0 || n.pins > 0 || n.num_attached > 0, "node {} has no reason",
                 node);
    if (n.is_root) {
      ++roots;
    } else {
      ++children[n.parent];
      HEARTH_CHECK(n.hash == chain_hash(at(n.parent).hash, tokens(node)), "node {}", node);
      HEARTH_CHECK(n.depth == at(n.parent).depth + 1, "node {}", node);
      HEARTH_CHECK(by_hash_.at(n.hash) == node, "node {}", node);
    }
    int32_t blocks = 0;
    for (int32_t group = 0; std::cmp_less(group, num_groups_); ++group) {
      const int32_t b = block(node, group);
      if (b == kNoBlock) continue;
      ++blocks;
      HEARTH_CHECK(node_of(group, b) == node, "block {} of group {}", b, group);
    }
    HEARTH_CHECK(blocks == n.num_attached, "node {}: {} of {} blocks", node, blocks,
                 n.num_attached);
    attached += blocks;
  }
  for (NodeId node = 0; node < end_node(); ++node) {
    const Node& n = nodes_[node];
    HEARTH_CHECK(!n.alive || n.num_children == children[node], "node {}: {} children, {} exist",
                 node, n.num_children, children[node]);
  }
  size_t owned = 0;
  for (const std::vector<NodeId>& group : node_of_block_) {
    owned += std::ranges::count_if(group, [](NodeId node) { return node != kNoNode; });
  }
  HEARTH_CHECK(owned == attached, "owned={} attached={}", owned, attached);
  HEARTH_CHECK(
      alive == num_nodes_ && roots == size32(roots_) && size32(by_hash_) + size32(roots_) == alive,
      "alive={} counted={} roots={}", num_nodes_, alive, roots);
}

}  // namespace hearth::engine
