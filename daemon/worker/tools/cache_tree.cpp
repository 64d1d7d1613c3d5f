#include "daemon/worker/tools/cache_tree.h"

#include <map>
#include <ranges>
#include <set>
#include <utility>

namespace hearth::worker {

using engine::StoredEntry;

uint64_t Run::bytes() const {
  uint64_t out = 0;
  for (const StoredEntry* chunk : chunks) out += chunk->bytes;
  return out;
}

std::string Run::name() const { return engine::to_hex(chunks.back()->last).substr(0, 12); }

int64_t Run::end_block(const engine::KvLayout& layout) const {
  return int64_t{chunks.back()->index} * layout.chunk_blocks() + chunks.back()->num_blocks;
}

Tree tree_of(const std::vector<StoredEntry>& entries) {
  std::map<std::string, std::vector<const StoredEntry*>> children;  // by the parent's name
  std::set<std::string> lasts;
  for (const StoredEntry& entry : entries) {
    children[engine::to_hex(entry.parent)].push_back(&entry);
    if (!entry.state) lasts.insert(engine::to_hex(entry.last));
  }
  Tree tree;
  // Rows are untrusted: they may continue each other, or themselves. Each is shown once; of several
  // with the same name, the first takes all children.
  std::set<int64_t> seen;
  const auto take_children = [&](const StoredEntry& of) {
    std::vector<const StoredEntry*> out;
    if (of.state) return out;  // what follows it continues the blocks that it belongs to
    if (const auto found = children.find(engine::to_hex(of.last)); found != children.end()) {
      out = std::exchange(found->second, {});
      std::erase_if(out, [&](const StoredEntry* child) { return seen.contains(child->row); });
    }
    return out;
  };
  struct Begin {
    const StoredEntry* chunk;
    std::optional<size_t> parent;
  };
  std::vector<Begin> begins;  // a stack: the next one is last
  const auto grow = [&](const StoredEntry& root) {
    tree.roots.push_back(tree.runs.size());
    begins.push_back({&root, std::nullopt});
    while (!begins.empty()) {
      const Begin begin = begins.back();
      begins.pop_back();
      if (seen.contains(begin.chunk->row)) continue;
      const size_t at = tree.runs.size();
      Run& run = tree.runs.emplace_back();
      run.parent = begin.parent;
      if (begin.parent) tree.runs[*begin.parent].next.push_back(at);
      std::vector<const StoredEntry*> next = {begin.chunk};
      while (next.size() == 1 && (run.chunks.empty() || !next.front()->state)) {
        run.chunks.push_back(next.front());
        seen.insert(next.front()->row);
        next = take_children(*next.front());
      }
      for (const StoredEntry* child : std::views::reverse(next)) begins.push_back({child, at});
    }
  };
  for (const StoredEntry& entry : entries) {
    if (!seen.contains(entry.row) && !lasts.contains(engine::to_hex(entry.parent))) grow(entry);
  }
  for (const StoredEntry& entry : entries) {
    if (!seen.contains(entry.row)) grow(entry);
  }
  return tree;
}

std::vector<size_t> runs_named(const Tree& tree, const std::string& name) {
  constexpr size_t kFewest = 4;
  std::vector<size_t> out;
  if (name.size() < kFewest) return out;
  for (size_t run = 0; run < tree.runs.size(); ++run) {
    if (engine::to_hex(tree.runs[run].chunks.back()->last).starts_with(name)) out.push_back(run);
  }
  return out;
}

void take_behind(const Tree& tree, size_t run, std::vector<int64_t>& rows) {
  std::vector<size_t> wanted = {run};
  while (!wanted.empty()) {
    const Run& each = tree.runs[wanted.back()];
    wanted.pop_back();
    for (const StoredEntry* chunk : each.chunks) rows.push_back(chunk->row);
    wanted.insert(wanted.end(), each.next.rbegin(), each.next.rend());
  }
}

void take_in_front(const Tree& tree, size_t run, std::vector<int64_t>& rows) {
  std::vector<size_t> path;
  for (std::optional<size_t> at = run; at; at = tree.runs[*at].parent) path.push_back(*at);
  for (const size_t each : std::views::reverse(path)) {
    for (const StoredEntry* chunk : tree.runs[each].chunks) rows.push_back(chunk->row);
  }
}

}  // namespace hearth::worker
