#include "daemon/worker/cache_tree.h"

#include <map>
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
    lasts.insert(engine::to_hex(entry.last));
  }
  Tree tree;
  // A row that names itself as its parent is crafted: each row is shown once.
  std::set<int64_t> seen;
  const auto grow = [&](const StoredEntry* first, const auto& self) -> size_t {
    Run run;
    const StoredEntry* chunk = first;
    std::vector<const StoredEntry*> more;
    while (true) {
      run.chunks.push_back(chunk);
      seen.insert(chunk->row);
      more.clear();
      for (const StoredEntry* child : children[engine::to_hex(chunk->last)]) {
        if (!seen.contains(child->row)) more.push_back(child);
      }
      if (more.size() != 1) break;
      chunk = more.front();
    }
    const size_t at = tree.runs.size();
    tree.runs.push_back(std::move(run));
    for (const StoredEntry* child : more) {
      if (seen.contains(child->row)) continue;
      const size_t next = self(child, self);
      tree.runs[at].next.push_back(next);
      tree.runs[next].parent = at;
    }
    return at;
  };
  for (const StoredEntry& entry : entries) {
    if (seen.contains(entry.row) || lasts.contains(engine::to_hex(entry.parent))) continue;
    tree.roots.push_back(grow(&entry, grow));
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
  for (const StoredEntry* chunk : tree.runs[run].chunks) rows.push_back(chunk->row);
  for (const size_t next : tree.runs[run].next) take_behind(tree, next, rows);
}

void take_in_front(const Tree& tree, size_t run, std::vector<int64_t>& rows) {
  if (tree.runs[run].parent) take_in_front(tree, *tree.runs[run].parent, rows);
  for (const StoredEntry* chunk : tree.runs[run].chunks) rows.push_back(chunk->row);
}

}  // namespace hearth::worker
