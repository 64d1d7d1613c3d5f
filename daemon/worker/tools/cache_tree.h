#pragma once
// Stored chunks as a tree for display. Each line is a run of chunks without branches.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/store/store_admin.h"

namespace hearth::worker {

/// A run of chunks without branches: one line of the tree.
struct Run {
  std::vector<const engine::StoredEntry*> chunks;
  std::vector<size_t> next;  ///< runs that continue it
  std::optional<size_t> parent;
  uint64_t bytes() const;
  /// Its name for display: a sufficient part of the last block's name.
  std::string name() const;
  int64_t end_block(const engine::KvLayout& layout) const;
};

struct Tree {
  std::vector<Run> runs;
  std::vector<size_t> roots;  ///< includes runs without a beginning, and self-parents
};

/// Each entry appears once, even if the entries contradict each other. Does not recurse. The
/// entries outlive the tree.
Tree tree_of(const std::vector<engine::StoredEntry>& entries);

/// The runs whose name begins with `name` (four characters or more).
std::vector<size_t> runs_named(const Tree& tree, const std::string& name);
/// Adds the rows of the run and of all runs that continue it.
void take_behind(const Tree& tree, size_t run, std::vector<int64_t>& rows);
/// Adds the rows of the run and of all runs before it.
void take_in_front(const Tree& tree, size_t run, std::vector<int64_t>& rows);

}  // namespace hearth::worker
