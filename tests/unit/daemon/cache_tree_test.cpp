#include "daemon/worker/tools/cache_tree.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace hearth::worker {
namespace {

using engine::StoredEntry;

StoredEntry entry(int64_t row, uint64_t parent, uint64_t last) {
  StoredEntry out;
  out.row = row;
  out.parent = {parent, 0};
  out.last = {last, 0};
  return out;
}

std::vector<int64_t> rows_of(void (*take)(const Tree&, size_t, std::vector<int64_t>&),
                             const Tree& tree, size_t run) {
  std::vector<int64_t> out;
  take(tree, run, out);
  return out;
}

TEST_CASE("chunks become runs, and runs a tree") {
  // 1 2 then 3 4 or 5; 6 has lost its beginning.
  const std::vector<StoredEntry> entries = {entry(1, 0, 10),  entry(2, 10, 20), entry(3, 20, 30),
                                            entry(5, 20, 50), entry(4, 30, 40), entry(6, 77, 60)};
  const Tree tree = tree_of(entries);
  REQUIRE(tree.runs.size() == 4);
  CHECK(tree.roots == std::vector<size_t>{0, 3});
  CHECK(tree.runs[0].next == std::vector<size_t>{1, 2});
  CHECK(tree.runs[1].parent == 0);
  CHECK(rows_of(take_behind, tree, 0) == std::vector<int64_t>{1, 2, 3, 4, 5});
  CHECK(rows_of(take_behind, tree, 1) == std::vector<int64_t>{3, 4});
  CHECK(rows_of(take_in_front, tree, 2) == std::vector<int64_t>{1, 2, 5});
}

TEST_CASE("a state is a branch of its own, and nothing continues it") {
  // 1 2 3; 11 and 12 are states within and at the end of 2.
  std::vector<StoredEntry> entries = {entry(1, 0, 10), entry(11, 10, 15), entry(12, 10, 20),
                                      entry(2, 10, 20), entry(3, 20, 30)};
  entries[1].state = entries[2].state = true;
  const Tree tree = tree_of(entries);
  REQUIRE(tree.runs.size() == 4);
  CHECK(tree.roots == std::vector<size_t>{0});
  CHECK(rows_of(take_in_front, tree, 1) == std::vector<int64_t>{1, 11});
  CHECK(rows_of(take_in_front, tree, 2) == std::vector<int64_t>{1, 12});
  CHECK(rows_of(take_behind, tree, 3) == std::vector<int64_t>{2, 3});
}

TEST_CASE("rows that continue each other, or themselves, are shown once each") {
  const std::vector<StoredEntry> entries = {entry(1, 10, 10), entry(2, 30, 20), entry(3, 20, 30),
                                            entry(4, 0, 20),  entry(5, 0, 40),  entry(6, 0, 40)};
  const Tree tree = tree_of(entries);
  std::vector<int64_t> rows;
  for (const size_t root : tree.roots) take_behind(tree, root, rows);
  std::ranges::sort(rows);
  CHECK(rows == std::vector<int64_t>{1, 2, 3, 4, 5, 6});
}

TEST_CASE("a hundred thousand levels of branches, and as many rows of one name") {
  constexpr int64_t kLevels = 100'000;
  std::vector<StoredEntry> entries;
  for (int64_t level = 0; level < kLevels; ++level) {
    const auto name = static_cast<uint64_t>(level);
    entries.push_back(entry(2 * level, name, name + 1));
    entries.push_back(entry(2 * level + 1, name, 1'000'000 + name));
  }
  const Tree deep = tree_of(entries);
  CHECK(deep.runs.size() == 2 * kLevels);
  size_t deepest = 0;
  while (!deep.runs[deepest].next.empty()) deepest = deep.runs[deepest].next.front();
  CHECK(rows_of(take_behind, deep, deep.roots.front()).size() == entries.size() - 1);
  CHECK(rows_of(take_in_front, deep, deepest).size() == kLevels);

  for (StoredEntry& each : entries) each = entry(each.row, each.row == 0 ? 7 : 9, 9);
  const Tree wide = tree_of(entries);
  CHECK(rows_of(take_behind, wide, wide.roots.front()).size() == entries.size());
}

}  // namespace
}  // namespace hearth::worker
