#include "engine/kv/usable_prefix.h"

#include <doctest/doctest.h>

#include <random>
#include <string>

namespace hearth::engine {
namespace {

constexpr int32_t kBlock = 4;

/// Per group, a character for each block of the chain: 'x' if the group has it.
using Blocks = std::vector<std::string>;

int32_t usable(std::span<const KvGroup> groups, const Blocks& blocks, int32_t max_blocks) {
  size_t known = 0;  // blocks moved to so far
  return usable_prefix(
      groups, kBlock, max_blocks, [&] { return known++ < blocks.front().size(); },
      [&](int32_t group) { return blocks[static_cast<size_t>(group)][known - 1] == 'x'; });
}

/// By the definition: tries every length, longest first.
int32_t usable_by_definition(std::span<const KvGroup> groups, const Blocks& blocks,
                             int32_t max_blocks) {
  const auto all = static_cast<int32_t>(blocks.front().size());
  for (int32_t n = std::min(all, max_blocks); n > 0; --n) {
    bool complete = true;
    for (size_t group = 0; group < groups.size(); ++group) {
      for (int32_t position = 0; position < n * kBlock; ++position) {
        const int32_t window = groups[group].window;
        const bool seen = window == 0 || position > n * kBlock - window;
        if (seen && blocks[group][static_cast<size_t>(position / kBlock)] != 'x') complete = false;
      }
    }
    if (complete) return n;
  }
  return 0;
}

TEST_CASE("a full group's prefix ends at its first gap") {
  const KvGroup full[] = {{8, 0}};
  CHECK(usable(full, {"xxxx"}, 8) == 4);
  CHECK(usable(full, {"xxxx"}, 3) == 3);
  CHECK(usable(full, {"xx.x"}, 8) == 2);
  CHECK(usable(full, {".xxx"}, 8) == 0);
  CHECK(usable(full, {""}, 8) == 0);
}

TEST_CASE("a sliding group needs only the blocks of its window") {
  const KvGroup sliding[] = {{8, 6}};
  CHECK(usable(sliding, {"xx"}, 8) == 2);
  // The query at position 20 attends to positions 15 to 20, which begin in block 3.
  CHECK(usable(sliding, {"...xx"}, 8) == 5);
  CHECK(usable(sliding, {"....x"}, 8) == 0);
  CHECK(usable(sliding, {"xx..x"}, 8) == 2);
  // A window of one position is the query's own.
  const KvGroup narrow[] = {{8, 1}};
  CHECK(usable(narrow, {"...."}, 8) == 4);
}

TEST_CASE("a prefix is usable only where every group has what it needs") {
  const KvGroup groups[] = {{8, 0}, {8, 6}};
  CHECK(usable(groups, {"xxxxx", "...xx"}, 8) == 5);
  CHECK(usable(groups, {"xxxx.", "...xx"}, 8) == 0);
  CHECK(usable(groups, {"xxxxx", "xx..."}, 8) == 2);
}

TEST_CASE("the search agrees with the definition on random chains") {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::vector<KvGroup> groups;
    Blocks blocks;
    const size_t length = random() % 10;
    for (size_t group = 0; group <= random() % 3; ++group) {
      groups.push_back({8, static_cast<int32_t>(random() % 16)});
      blocks.emplace_back();
      for (size_t i = 0; i < length; ++i) blocks.back() += random() % 5 == 0 ? '.' : 'x';
    }
    const auto max_blocks = static_cast<int32_t>(random() % 12);
    CAPTURE(round);
    CHECK(usable(groups, blocks, max_blocks) == usable_by_definition(groups, blocks, max_blocks));
  }
}

}  // namespace
}  // namespace hearth::engine
