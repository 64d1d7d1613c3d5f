#include "monitor/snapshot/prefix_tree.h"

#include <fmt/core.h>

#include <algorithm>
#include <unordered_map>

#include "ipc/text/shown_text.h"
#include "ipc/wire/json.h"

namespace hearth::monitor {
namespace {

constexpr size_t kMaxListBytes = 64u << 20;
constexpr size_t kTreeTextChars = 48;

int64_t whole_member(const ipc::Json& entry, const char* key) {
  const auto found = entry.find(key);
  if (found == entry.end() || !found->is_number_integer()) return 0;
  if (found->is_number_unsigned()) {
    return std::min<uint64_t>(found->get<uint64_t>(), INT64_MAX);
  }
  return std::max<int64_t>(0, found->get<int64_t>());
}

std::string text_member(const ipc::Json& entry, const char* key) {
  const auto found = entry.find(key);
  if (found == entry.end() || !found->is_string()) return "";
  return ipc::one_line(found->get_ref<const std::string&>(), kTreeTextChars);
}

std::string hex(uint64_t high, uint64_t low) { return fmt::format("{:016x}{:016x}", high, low); }

struct Node {
  std::string name, parent;
  int64_t first_token = 0, end_token = 0;
  const StoredPrefix* disk = nullptr;
  const ipc::WatchedPrefix* memory = nullptr;
  std::vector<size_t> children;
  bool shown = false;
};

/// The chunk after which nothing on disk branches off: a run in the store is named after its end.
size_t run_end(const std::vector<Node>& nodes, size_t at) {
  for (size_t steps = 0; steps < nodes.size(); ++steps) {
    size_t next = nodes.size();
    for (const size_t child : nodes[at].children) {
      if (nodes[child].disk == nullptr) continue;
      if (next != nodes.size()) return at;
      next = child;
    }
    if (next == nodes.size()) return at;
    at = next;
  }
  return at;
}

bool same_tiers(const Node& a, const Node& b) {
  return (a.disk != nullptr) == (b.disk != nullptr) &&
         (a.memory != nullptr) == (b.memory != nullptr);
}

}  // namespace

Result<std::vector<StoredPrefix>> parse_cache_list(std::string_view list) {
  const ipc::JsonLimits limits{.max_bytes = kMaxListBytes,
                               .max_depth = 4,
                               .max_value_bytes = kMaxStoredPrefixes * 1024,
                               .max_object_keys = 32};
  // The parser accepts only objects and the list is an array, so wrap it.
  HEARTH_ASSIGN_OR_RETURN(const ipc::Json whole,
                          ipc::parse_json_object(fmt::format("{{\"all\":{}}}", list), limits));
  const ipc::Json& all = whole.begin().value();
  if (whole.size() != 1 || !all.is_array()) {
    return Error::protocol("cache ls: want a list");
  }
  std::vector<StoredPrefix> out;
  for (const ipc::Json& entry : all) {
    if (!entry.is_object()) return Error::protocol("cache ls: want objects");
    if (out.size() == kMaxStoredPrefixes) break;
    StoredPrefix each;
    each.model = text_member(entry, "model");
    each.owner = text_member(entry, "owner");
    each.name = text_member(entry, "name");
    each.parent = text_member(entry, "parent");
    each.first_token = whole_member(entry, "first_token");
    each.end_token = whole_member(entry, "end_token");
    each.bytes = whole_member(entry, "bytes");
    each.hits = whole_member(entry, "hits");
    each.used_s = whole_member(entry, "used_s");
    each.pinned_until_s = whole_member(entry, "pinned_until_s");
    if (!each.name.empty()) out.push_back(std::move(each));
  }
  return out;
}

std::vector<PrefixLine> prefix_tree(std::span<const StoredPrefix> stored, std::string_view model,
                                    std::span<const ipc::WatchedPrefix> memory, int32_t block_size,
                                    int64_t now_s, size_t* left_out) {
  std::vector<Node> nodes;
  std::unordered_map<std::string, size_t> by_name;
  const auto node_of = [&](const std::string& name, const std::string& parent) -> Node& {
    const auto [at, fresh] = by_name.try_emplace(name, nodes.size());
    if (fresh) {
      nodes.emplace_back();
      nodes.back().name = name;
      nodes.back().parent = parent;
    }
    return nodes[at->second];
  };
  for (const ipc::WatchedPrefix& each : memory) {
    Node& node =
        node_of(hex(each.name_high, each.name_low), hex(each.parent_high, each.parent_low));
    node.memory = &each;
    node.end_token = int64_t{each.end_block} * block_size;
    node.first_token = std::max<int64_t>(0, node.end_token - int64_t{each.num_blocks} * block_size);
  }
  for (const StoredPrefix& each : stored) {
    if (each.model != model) continue;
    Node& node = node_of(each.name, each.parent);
    node.disk = &each;
    node.first_token = each.first_token;
    node.end_token = each.end_token;
  }
  std::vector<size_t> roots;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto parent = by_name.find(nodes[i].parent);
    if (parent == by_name.end() || parent->second == i) {
      roots.push_back(i);
    } else {
      nodes[parent->second].children.push_back(i);
    }
  }
  const auto in_order = [&nodes](size_t a, size_t b) {
    return nodes[a].end_token != nodes[b].end_token ? nodes[a].end_token > nodes[b].end_token
                                                    : nodes[a].name < nodes[b].name;
  };
  std::vector<PrefixLine> lines;
  size_t more = 0;
  struct Due {
    size_t node;
    int depth;
  };
  std::vector<Due> due;  // a stack; the end is processed first
  const auto add_due = [&](std::vector<size_t> some, int depth) {
    std::ranges::sort(some, in_order);
    for (auto at = some.rbegin(); at != some.rend(); ++at) due.push_back({*at, depth});
  };
  add_due(roots, 0);
  while (!due.empty()) {
    const Due next = due.back();
    due.pop_back();
    if (nodes[next.node].shown) continue;
    PrefixLine line;
    line.depth = next.depth;
    line.first_token = nodes[next.node].first_token;
    size_t at = next.node;
    while (true) {
      Node& node = nodes[at];
      node.shown = true;  // a prefix that names itself as its ancestor is shown once
      line.name = node.name;
      line.end_token = node.end_token;
      if (node.disk != nullptr) {
        line.disk_bytes += node.disk->bytes;
        line.hits = node.disk->hits;
        line.used_s = node.disk->used_s;
        line.owner = node.disk->owner;
        line.pinned = line.pinned || node.disk->pinned_until_s > now_s;
      }
      if (node.memory != nullptr) {
        line.memory_blocks += node.memory->num_blocks;
        line.used_blocks += node.memory->in_use;
        line.pinned = line.pinned || node.memory->pinned;
      }
      if (node.children.size() != 1) break;
      const Node& child = nodes[node.children.front()];
      if (child.shown || !same_tiers(node, child)) break;
      at = node.children.front();
    }
    if (nodes[at].disk != nullptr) line.run = nodes[run_end(nodes, at)].name;
    lines.size() < kMaxPrefixLines ? lines.push_back(std::move(line)) : void(++more);
    add_due(nodes[at].children, next.depth + 1);
  }
  if (left_out != nullptr) *left_out = more;
  return lines;
}

}  // namespace hearth::monitor
