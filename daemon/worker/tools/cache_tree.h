#pragma once
// Stored chunks as people look at them: a tree whose lines are runs of chunks that nothing branches
// off.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/store/store_admin.h"

namespace hearth::worker {

/// A run of chunks that nothing branches off: one line of the tree.
struct Run {
  std::vector<const engine::StoredEntry*> chunks;
  std::vector<size_t> next;  ///< runs that continue it
  std::optional<size_t> parent;
  uint64_t bytes() const;
  /// What a person calls it: enough of the last block's name.
  std::string name() const;
  int64_t end_block(const engine::KvLayout& layout) const;
};

struct Tree {
  std::vector<Run> runs;
  std::vector<size_t> roots;  ///< also those whose beginning is gone, or that are their own
};

/// Each entry once, whatever they say of each other; depth costs no stack. The entries outlive it.
Tree tree_of(const std::vector<engine::StoredEntry>& entries);

/// The runs that `name` (four characters or more) begins the name of.
std::vector<size_t> runs_named(const Tree& tree, const std::string& name);
/// Rows of the run and of all that continues it.
void take_behind(const Tree& tree, size_t run, std::vector<int64_t>& rows);
/// Rows of the run and of all in front of it.
void take_in_front(const Tree& tree, size_t run, std::vector<int64_t>& rows);

}  // namespace hearth::worker
