#pragma once
// Maps tokens to the blocks that hold their KV: a tree of full blocks, found by hash.
//
// A node represents `block_size` tokens after those of its parent. Its hash is XXH3-128 over
// (parent hash, token ids); a root's hash is over its scope, a text of all that changes KV (model
// fingerprint, rope and context settings, KV type, numerics_id, block size, salt). A lookup goes
// from the root down and compares parent and tokens at each node, because a hash alone proves
// nothing. So a hit is exact, and a lookup ends at the chain's first gap.
//
// A node lives as long as a group's block is attached to it, a child needs it for that comparison,
// or a sequence's cursor pins it. The index counts no block references; KvCache connects it with
// the pools. The store names chains by the same hashes, and a node knows whether the store has its
// blocks.
//
// Owned by the engine thread.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/kv/chain_hash.h"
#include "engine/kv/scope_names.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {

class CacheEventLog;

using NodeId = int32_t;
inline constexpr NodeId kNoNode = -1;
/// Owner lists of a pool. With more roots (owners) than this, several share a list.
inline constexpr int32_t kNumOwnerLists = 64;
inline constexpr int32_t kNoBlock = -1;

/// Log probabilities of a block's tokens, each given those before it (prompt_scores.h). The first
/// token of a chain has none: 0 stands in its place.
struct BlockScores {
  std::vector<float> logprobs;  ///< (tokens); empty: not known
  int32_t num_best = 0;         ///< of the most likely tokens in its place, as it was asked for
  std::vector<int32_t> best_tokens;  ///< (tokens, num_best, or the vocabulary if that is less)
  std::vector<float> best_logprobs;  ///< like best_tokens
};

class PrefixIndex {
 public:
  /// `num_blocks`: blocks of each layer group's pool.
  PrefixIndex(int32_t block_size, std::span<const int32_t> num_blocks);

  /// From now on blocks of these scopes that are attached and detached are noted in `log`, which
  /// outlives this; those of others cost one test of a flag. Call it while the index is empty.
  void publish(const ScopeNames& names, CacheEventLog& log);

  /// The root of that scope, or kNoNode if the index has none.
  NodeId find_root(std::string_view scope) const;
  /// The node of that hash, or kNoNode.
  NodeId find(const Hash128& hash) const;
  /// The root of that scope, created if there is none, with one more pin.
  NodeId pin_root(std::string_view scope);

  /// The child of `parent` that holds exactly these block_size tokens, or kNoNode.
  NodeId find_child(NodeId parent, std::span<const int32_t> tokens) const;
  /// That child, created if there is none. kNoNode if another chain has the same hash: then the
  /// blocks of this chain cannot be indexed.
  NodeId find_or_add_child(NodeId parent, std::span<const int32_t> tokens);

  void pin(NodeId node);
  /// Also prunes, and returns what `prune` does.
  NodeId unpin(NodeId node);

  /// Attaches a block if the node has none of that group.
  void attach(NodeId node, int32_t group, int32_t block);
  /// Takes the block from its node and returns the node, which stays until `prune`.
  NodeId detach(int32_t group, int32_t block);
  /// Drops the node, then its ancestors, until one has a reason to live. Returns that ancestor if
  /// it has lost its last child, or kNoNode.
  NodeId prune(NodeId node);

  /// Whether the node is alive and has that hash.
  bool has(NodeId node, const Hash128& hash) const;
  /// Whether the store has the node's blocks. Dropped with the node.
  bool stored(NodeId node) const { return at(node).stored; }
  void set_stored(NodeId node) { at(node).stored = true; }
  /// The same for the state at its end.
  bool state_stored(NodeId node) const { return at(node).state_stored; }
  void set_state_stored(NodeId node) { at(node).state_stored = true; }
  void clear_stored();

  /// Dropped with the node.
  const BlockScores& scores(NodeId node) const { return at(node).scores; }
  void set_scores(NodeId node, BlockScores scores) { at(node).scores = std::move(scores); }

  int32_t block(NodeId node, int32_t group) const;
  int32_t num_children(NodeId node) const { return at(node).num_children; }
  NodeId parent(NodeId node) const { return at(node).parent; }
  /// Blocks from the root up to and including this one; 0 for a root.
  int32_t depth(NodeId node) const { return at(node).depth; }
  /// That of the node's root: the blocks of one chain are on one owner list of their pool.
  int32_t owner_list(NodeId node) const { return at(node).owner_list; }
  const Hash128& hash(NodeId node) const { return at(node).hash; }
  std::span<const int32_t> tokens(NodeId node) const;
  /// Nodes alive, roots included.
  int32_t num_nodes() const { return num_nodes_; }
  /// All node numbers are below this.
  NodeId end_node() const { return size32(nodes_); }
  bool alive(NodeId node) const { return nodes_[node].alive; }
  bool is_root(NodeId node) const { return at(node).is_root; }

  /// Stops the process unless counts, parents, hashes and attached blocks agree with each other.
  void check_integrity() const;
  /// The node a block is attached to, or kNoNode.
  NodeId node_of(int32_t group, int32_t block) const;

 private:
  struct Node {
    Hash128 hash;
    NodeId parent = kNoNode;
    int32_t depth = 0;
    int32_t num_children = 0;
    int32_t pins = 0;
    int32_t num_attached = 0;
    bool alive = false;
    bool is_root = false;
    bool stored = false;
    bool state_stored = false;
    bool published = false;  ///< its root's scope is
    uint8_t owner_list = 0;
    BlockScores scores;
  };
  struct HashOfHash {
    size_t operator()(const Hash128& hash) const { return hash.low; }
  };

  const Node& at(NodeId node) const;
  Node& at(NodeId node);
  NodeId take_node();
  int32_t* blocks_of(NodeId node);
  void note_attached(NodeId node, int32_t group);

  const size_t block_size_;
  const size_t num_groups_;
  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;  ///< (nodes, block_size)
  std::vector<int32_t> blocks_;  ///< (nodes, groups), kNoBlock if nothing is attached
  std::vector<NodeId> unused_;
  int32_t num_nodes_ = 0;
  std::vector<std::vector<NodeId>> node_of_block_;  ///< per group
  std::unordered_map<Hash128, NodeId, HashOfHash> by_hash_;
  std::unordered_map<std::string, NodeId> roots_;
  std::unordered_map<NodeId, std::string> published_roots_;  ///< with the names of their scopes
  std::array<int32_t, kNumOwnerLists> roots_of_list_{};
  ScopeNames names_;
  CacheEventLog* log_ = nullptr;  ///< null: nothing is published
};

}  // namespace hearth::engine
