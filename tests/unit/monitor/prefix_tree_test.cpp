// The tree of prefixes from both tiers, and the tree made of a damaged list.

#include "monitor/snapshot/prefix_tree.h"

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <random>

namespace hearth::monitor {
namespace {

std::string name(uint64_t number) { return fmt::format("{:016x}{:016x}", uint64_t{0}, number); }

StoredPrefix chunk(uint64_t number, uint64_t parent, int64_t first, int64_t end) {
  StoredPrefix out;
  out.model = "tales";
  out.owner = "uid:1000";
  out.name = name(number);
  out.parent = name(parent);
  out.first_token = first;
  out.end_token = end;
  out.bytes = 1000;
  out.hits = static_cast<int64_t>(number);
  return out;
}

ipc::WatchedPrefix run(uint64_t number, uint64_t parent, int32_t end_block, int32_t blocks,
                       int32_t in_use = 0) {
  ipc::WatchedPrefix out;
  out.name_low = number;
  out.parent_low = parent;
  out.end_block = end_block;
  out.num_blocks = blocks;
  out.in_use = in_use;
  return out;
}

TEST_CASE("runs of the same tiers are one line; branches go below; tiers are matched by name") {
  // 1 -> 2 -> 3 and 2 -> 4 on disk; 1 -> 2 also in memory, and 2 -> 5 only there.
  std::vector<StoredPrefix> stored = {chunk(1, 99, 0, 64), chunk(2, 1, 64, 128),
                                      chunk(3, 2, 128, 192), chunk(4, 2, 128, 160)};
  stored.push_back(chunk(7, 98, 0, 64));
  stored.back().model = "another";
  stored[2].pinned_until_s = 2000;
  stored[3].pinned_until_s = 500;
  const std::vector<ipc::WatchedPrefix> memory = {run(1, 99, 4, 4), run(2, 1, 8, 4, 2),
                                                  run(5, 2, 10, 2, 2)};
  size_t left_out = 1;
  const auto lines = prefix_tree(stored, "tales", memory, 16, 1000, &left_out);
  CHECK(left_out == 0);
  REQUIRE(lines.size() == 4);
  CHECK(lines[0].name == name(2));
  CHECK(lines[0].depth == 0);
  CHECK(lines[0].first_token == 0);
  CHECK(lines[0].end_token == 128);
  CHECK(lines[0].disk_bytes == 2000);
  CHECK(lines[0].memory_blocks == 8);
  CHECK(lines[0].used_blocks == 2);
  CHECK(lines[0].hits == 2);
  CHECK(lines[0].run == name(2));
  CHECK(lines[0].owner == "uid:1000");
  CHECK(lines[1].name == name(3));  // the longest first
  CHECK(lines[1].depth == 1);
  CHECK(lines[1].pinned);
  CHECK(lines[1].memory_blocks == 0);
  CHECK_FALSE(lines[2].pinned);  // was, until 500
  CHECK(lines[3].name == name(5));
  CHECK(lines[3].disk_bytes == 0);
  CHECK(lines[3].run.empty());
  CHECK(lines[3].first_token == 128);
  CHECK(lines[3].end_token == 160);
}

TEST_CASE("an entry that names itself as its ancestor is shown at most once, without a loop") {
  const std::vector<StoredPrefix> stored = {chunk(1, 1, 0, 64), chunk(2, 3, 0, 64),
                                            chunk(3, 2, 64, 128), chunk(4, 3, 128, 192)};
  CHECK(prefix_tree(stored, "tales", {}, 16, 0, nullptr).size() <= 4);
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<StoredPrefix> some;
    std::vector<ipc::WatchedPrefix> held;
    for (int i = 0; i < 30; ++i) some.push_back(chunk(random() % 20, random() % 20, 0, 64));
    for (int i = 0; i < 30; ++i) {
      held.push_back(run(random() % 30, random() % 30, static_cast<int32_t>(random()),
                         static_cast<int32_t>(random())));
    }
    const auto lines = prefix_tree(some, "tales", held, INT32_MAX, 0, nullptr);
    CHECK(lines.size() <= 50);
  }
}

TEST_CASE("a tree above the bound shows how much is left out") {
  std::vector<StoredPrefix> stored;
  for (uint64_t i = 0; i < kMaxPrefixLines + 10; ++i) stored.push_back(chunk(i + 100, 1, 0, 64));
  size_t left_out = 0;
  CHECK(prefix_tree(stored, "tales", {}, 16, 0, &left_out).size() == kMaxPrefixLines);
  CHECK(left_out == 10);
}

TEST_CASE("the list as hearth cache ls prints it, and others") {
  const auto list = parse_cache_list(
      R"([{"model":"tales","name":"00ff","parent":"11","owner":"uid:7\u001b[2J","first_token":0,
           "end_token":64,"bytes":1048576,"hits":3,"used_s":1700000000,"pinned_until_s":0},
          {"model":"tales","name":"00fe","bytes":-4,"hits":1e99,"end_token":"x"}, {"name":7}])");
  REQUIRE(list.ok());
  REQUIRE(list->size() == 2);
  CHECK((*list)[0].bytes == 1048576);
  CHECK((*list)[0].owner.find('\x1b') == std::string::npos);
  CHECK((*list)[1].bytes == 0);
  CHECK((*list)[1].hits == 0);
  CHECK(parse_cache_list("[]\n")->empty());
  for (const char* text : {"", "{}", "[1]", "[", "[]}", "null", "[],\"b\":[1]"}) {
    CHECK_FALSE(parse_cache_list(text).ok());
  }
}

}  // namespace
}  // namespace hearth::monitor
