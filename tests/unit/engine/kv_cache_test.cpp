#include "engine/kv/kv_cache.h"

#include <doctest/doctest.h>

#include <vector>

#include "tests/unit/engine/kv_rig.h"

namespace hearth::engine {
namespace {

TEST_CASE("a finished sequence's full blocks are found again, its last token never") {
  const std::vector<KvGroup> groups = {{16, 0}};
  KvCache kv(4, groups);
  const std::vector<int32_t> tokens = numbers(18);
  SequenceBlocks a;
  kv.begin(a, "s", tokens, 17);
  CHECK(a.num_tokens == 0);
  compute(kv, a, tokens);
  CHECK(kv.pool(0).num_used() == 5);
  const std::vector<int32_t> a_blocks = a.tables[0];
  kv.release(a);
  CHECK(kv.pool(0).num_cached() == 4);
  CHECK(kv.pool(0).num_free() == 12);

  CHECK(kv.cached_tokens("s", tokens, 17) == 16);
  CHECK(kv.cached_tokens("s", tokens, 15) == 12);
  CHECK(kv.cached_tokens("other", tokens, 17) == 0);
  SequenceBlocks b;
  kv.begin(b, "s", tokens, 15);  // as for a prompt of exactly 16 tokens
  CHECK(b.num_tokens == 12);
  CHECK(std::equal(b.tables[0].begin(), b.tables[0].end(), a_blocks.begin()));
  check(kv, {&b});
  SequenceBlocks c;
  std::vector<int32_t> different = tokens;
  different[5] = 99;
  kv.begin(c, "s", different, 17);
  CHECK(c.num_tokens == 4);
  kv.release(b);
  kv.release(c);
  check(kv, {});
}

TEST_CASE("sequences that compute the same KV hold it once") {
  const std::vector<KvGroup> groups = {{16, 0}};
  KvCache kv(4, groups);
  const std::vector<int32_t> tokens = numbers(14);
  SequenceBlocks a, b, c;
  kv.begin(a, "s", tokens, 13);
  kv.begin(b, "s", tokens, 13);  // nothing is stored yet
  compute(kv, a, tokens);
  CHECK(kv.pool(0).num_used() == 4);
  compute(kv, b, tokens);  // computed anyway: frees its own full blocks
  CHECK(kv.pool(0).num_used() == 3 + 1 + 1);
  CHECK(a.tables[0][2] == b.tables[0][2]);
  CHECK(a.tables[0][3] != b.tables[0][3]);
  kv.begin_private(c);
  compute(kv, c, tokens);
  CHECK(kv.pool(0).num_used() == 5 + 4);
  check(kv, {&a, &b, &c});
  kv.release(a);
  kv.release(c);
  CHECK(kv.pool(0).num_used() == 4);
  kv.release(b);
  CHECK(kv.pool(0).num_cached() == 3);
  check(kv, {});
}

TEST_CASE("at a block border a sequence takes blocks that others have computed since") {
  const std::vector<KvGroup> groups = {{16, 0}};
  KvCache kv(4, groups);
  const std::vector<int32_t> tokens = numbers(20);
  SequenceBlocks a, b;
  kv.begin(a, "s", tokens, 19);
  kv.begin(b, "s", tokens, 19);
  compute(kv, a, tokens);
  CHECK(kv.adopt(b, tokens, 11) == 8);
  CHECK(kv.adopt(b, tokens, 19) == 8);
  CHECK(b.num_tokens == 16);
  CHECK(kv.adopt(b, tokens, 19) == 0);
  std::vector<BlockCopy> copies;
  REQUIRE(kv.reserve(b, 18, copies));
  kv.store(b, tokens, 18);  // in mid-block
  CHECK(kv.adopt(b, tokens, 19) == 0);
  check(kv, {&a, &b});
  kv.release(a);
  kv.release(b);
  check(kv, {});
}

TEST_CASE("blocks reserved for rejected drafts are given back, and never found") {
  const std::vector<KvGroup> groups = {{16, 0}, {16, 8}};
  KvCache kv(4, groups);
  std::vector<int32_t> tokens = numbers(10);
  SequenceBlocks a;
  kv.begin(a, "s", tokens, 9);
  compute(kv, a, tokens);
  // Token 10 is drawn; 11 to 16 are draft tokens after it.
  tokens.push_back(10);
  std::vector<BlockCopy> copies;
  REQUIRE(kv.reserve(a, 17, copies));
  CHECK(kv.reserved_tokens(a) == 20);
  CHECK(kv.pool(0).num_used() == 5);
  kv.store(a, tokens, 11);
  tokens.push_back(11);  // accepted
  kv.store(a, tokens, 12);
  kv.trim(a);
  CHECK(kv.reserved_tokens(a) == 12);
  CHECK(kv.pool(0).num_used() == 3);
  check(kv, {&a});
  const std::vector<int32_t> same = numbers(17);
  CHECK(kv.cached_tokens("s", same, 17) == 12);
  kv.trim(a);
  CHECK(kv.pool(0).num_used() == 3);
  compute(kv, a, numbers(14));
  kv.release(a);
  check(kv, {});
}

TEST_CASE("a branch has blocks of its own from the one of its first position on") {
  const std::vector<KvGroup> groups = {{16, 0}, {16, 6}};
  KvCache kv(4, groups);
  std::vector<BlockCopy> copies;
  for (const int32_t stored : {9, 10, 11, 12}) {
    for (const int32_t after : {0, 1, 2, 3}) {
      CAPTURE(stored);
      CAPTURE(after);
      std::vector<int32_t> tokens = numbers(stored);
      SequenceBlocks seq, branch;
      kv.begin(seq, "s", tokens, 0);
      compute(kv, seq, tokens);
      const int32_t size = stored + 1;  // the last token has no KV yet
      copies.clear();
      REQUIRE(kv.reserve(seq, size + 3, copies));
      const int32_t first = size + after;
      const std::vector<std::vector<int32_t>> before = seq.tables;
      copies.clear();
      REQUIRE(kv.begin_branch(seq, first, first + 2, branch, copies));
      CHECK(kv.first_own(first) == first / 4 * 4);
      // What is stored already in the first block of its own is copied, and nothing else.
      const bool copied = kv.first_own(first) < stored;
      CHECK(copies.size() == (copied ? 2 : 0));
      for (size_t group = 0; group < 2; ++group) {
        const auto shared = static_cast<size_t>(first / 4);
        REQUIRE(branch.tables[group].size() == static_cast<size_t>((first + 2 + 3) / 4));
        for (size_t i = 0; i < branch.tables[group].size(); ++i) {
          const bool equal =
              i < before[group].size() && branch.tables[group][i] == before[group][i];
          CHECK(equal == (i < shared));
        }
        if (copied) {
          CHECK(copies[group].src == before[group][shared]);
          CHECK(copies[group].dst == branch.tables[group][shared]);
        }
      }
      check(kv, {&seq, &branch});
      // The text goes on in the branch: its tokens and those before them are stored.
      for (int32_t i = 0; i < after + 1; ++i) tokens.push_back(100 + i);
      kv.store(seq, tokens, first);
      const std::vector<std::vector<int32_t>> own = branch.tables;
      kv.take_branch(seq, branch);
      CHECK(branch.tables.empty());
      for (size_t group = 0; group < 2; ++group) {
        for (auto i = static_cast<size_t>(first / 4); i < own[group].size(); ++i) {
          CHECK(seq.tables[group][i] == own[group][i]);
        }
      }
      check(kv, {&seq});
      tokens.resize(static_cast<size_t>(first) + 2, 7);
      kv.store(seq, tokens, first + 2);
      kv.trim(seq);
      check(kv, {&seq});
      kv.release(seq);
      check(kv, {});
    }
  }
}

TEST_CASE("a branch without room changes nothing") {
  const std::vector<KvGroup> groups = {{4, 0}};
  KvCache kv(4, groups);
  const std::vector<int32_t> tokens = numbers(9);
  SequenceBlocks seq, branch;
  std::vector<BlockCopy> copies;
  kv.begin_private(seq);
  compute(kv, seq, tokens);
  REQUIRE(kv.pool(0).num_used() == 3);
  CHECK_FALSE(kv.begin_branch(seq, 10, 13, branch, copies));
  CHECK(copies.empty());
  CHECK(branch.tables.empty());
  CHECK(kv.begin_branch(seq, 10, 12, branch, copies));
  kv.drop_branch(branch);
  check(kv, {&seq});
  CHECK(kv.pool(0).num_used() == 3);
  kv.release(seq);
}

TEST_CASE("forks share everything, and the first to write into the partial block copies it") {
  const std::vector<KvGroup> groups = {{16, 0}};
  KvCache kv(4, groups);
  std::vector<int32_t> tokens = numbers(10);
  SequenceBlocks a, b, c;
  kv.begin(a, "s", tokens, 9);
  compute(kv, a, tokens);
  kv.fork(a, b);
  kv.fork(a, c);
  CHECK(kv.pool(0).num_used() == 3);
  CHECK(kv.missing_blocks(b, 0, 11) == 1);
  check(kv, {&a, &b, &c});
  tokens.push_back(50);
  const auto from_a = compute(kv, a, tokens);
  REQUIRE(from_a.size() == 1);
  CHECK(from_a[0].src == b.tables[0][2]);
  CHECK(from_a[0].dst == a.tables[0][2]);
  tokens.back() = 51;
  CHECK(compute(kv, b, tokens).size() == 1);
  tokens.back() = 52;
  CHECK(compute(kv, c, tokens).empty());  // the last reference writes in place
  CHECK(kv.pool(0).num_used() == 2 + 3);
  tokens.push_back(53);
  CHECK(compute(kv, b, tokens).empty());  // b's own by now
  check(kv, {&a, &b, &c});
  kv.release(b);
  kv.release(a);
  kv.release(c);
  check(kv, {});
}

TEST_CASE("a fork at a block border copies nothing") {
  const std::vector<KvGroup> groups = {{16, 0}};
  KvCache kv(4, groups);
  std::vector<int32_t> tokens = numbers(8);
  SequenceBlocks a, b;
  kv.begin_private(a);
  compute(kv, a, tokens);
  kv.fork(a, b);
  tokens.push_back(1);
  CHECK(compute(kv, a, tokens).empty());
  CHECK(compute(kv, b, tokens).empty());
  CHECK(kv.pool(0).num_used() == 4);
  kv.release(a);
  kv.release(b);
  CHECK(kv.pool(0).num_free() == 16);
}

TEST_CASE("eviction removes chains from their ends, least recently used first") {
  const std::vector<KvGroup> groups = {{8, 0}};
  KvCache kv(4, groups);
  const std::vector<int32_t> x = numbers(16), y = numbers(16, 100);
  for (const auto* tokens : {&x, &y}) {
    SequenceBlocks seq;
    kv.begin(seq, "s", *tokens, 15);
    compute(kv, seq, *tokens);
    kv.release(seq);
  }
  CHECK(kv.pool(0).num_cached() == 8);
  SequenceBlocks hit;
  kv.begin(hit, "s", x, 8);  // the front of x is younger than y now
  CHECK(hit.num_tokens == 8);
  kv.release(hit);
  SequenceBlocks z;
  kv.begin_private(z);
  std::vector<BlockCopy> copies;
  const std::vector<std::pair<int32_t, int32_t>> left = {{12, 16}, {8, 16}, {8, 12}, {8, 8},
                                                         {8, 4},   {8, 0},  {4, 0},  {0, 0}};
  for (size_t i = 0; i < left.size(); ++i) {
    REQUIRE(kv.reserve(z, 4 * static_cast<int32_t>(i + 1), copies));
    CHECK(kv.cached_tokens("s", x, 16) == left[i].first);
    CHECK(kv.cached_tokens("s", y, 16) == left[i].second);
    check(kv, {&z});
  }
  CHECK_FALSE(kv.reserve(z, 33, copies));
  CHECK(z.tables[0].size() == 8);
  CHECK(copies.empty());
  kv.release(z);
  check(kv, {});
}

TEST_CASE("an owner cannot evict another's blocks while it keeps more itself") {
  const std::vector<KvGroup> groups = {{12, 0}};
  KvCache kv(4, groups);
  const auto ask = [&](const char* scope, std::span<const int32_t> tokens) {
    SequenceBlocks seq;
    const auto most = static_cast<int32_t>(tokens.size()) - 1;
    kv.begin(seq, scope, tokens, most);
    const int32_t cached = seq.num_tokens;
    compute(kv, seq, tokens);
    kv.release(seq);
    check(kv, {});
    return cached;
  };
  const std::vector<int32_t> his = numbers(17);
  CHECK(ask("his", his) == 0);
  for (int32_t i = 1; i < 20; ++i) CHECK(ask("mine", numbers(21, 100 * i)) == 0);
  CHECK(ask("his", his) == 16);
  // The owner's own were requested last.
  CHECK(ask("mine", numbers(21, 1900)) == 20);
}

TEST_CASE("a sliding group gives back blocks that no query sees any more") {
  const std::vector<KvGroup> groups = {{16, 0}, {8, 6}};  // full, and a window of 6 positions
  KvCache kv(4, groups);
  const std::vector<int32_t> tokens = numbers(40);
  SequenceBlocks seq;
  kv.begin(seq, "s", tokens, 39);
  std::vector<BlockCopy> copies;
  for (int32_t size = 1; size <= 40; ++size) {
    REQUIRE(kv.reserve(seq, size, copies));
    kv.store(seq, tokens, size);
    check(kv, {&seq});
    // The query at `size` attends to size - 5 .. size.
    const int32_t first = std::max(0, size - 5) / 4;
    CHECK(kv.pool(1).num_used() == (size + 3) / 4 - first);
    CHECK(kv.pool(0).num_used() == (size + 3) / 4);
  }
  kv.release(seq);
  // A hit needs only the window's blocks at its end. Of the sliding pool the last 8 blocks are
  // left, and all of the full one.
  CHECK(kv.cached_tokens("s", tokens, 40) == 40);
  CHECK(kv.cached_tokens("s", tokens, 35) == 32);
  CHECK(kv.cached_tokens("s", tokens, 19) == 16);
  CHECK(kv.cached_tokens("s", tokens, 15) == 0);  // the query at 12 sees block 1
  kv.begin(seq, "s", tokens, 35);
  CHECK(seq.tables[1][5] == kNoBlock);
  CHECK(seq.tables[1][6] != kNoBlock);
  CHECK(seq.tables[0][0] != kNoBlock);
  check(kv, {&seq});
  kv.release(seq);
}

TEST_CASE("evicting a full group's block evicts those of the other groups with it") {
  const std::vector<KvGroup> groups = {{16, 0}, {32, 6}};
  KvCache kv(4, groups);
  const std::vector<int32_t> tokens = numbers(40);
  SequenceBlocks seq, other;
  kv.begin(seq, "s", tokens, 39);
  compute(kv, seq, tokens);
  kv.release(seq);
  CHECK(kv.pool(1).num_cached() == 10);
  kv.begin_private(other);
  std::vector<BlockCopy> copies;
  REQUIRE(kv.reserve(other, 7 * 4, copies));  // 6 are free in the full pool, so one is evicted
  CHECK(kv.cached_tokens("s", tokens, 40) == 36);
  CHECK(kv.pool(1).num_cached() == 9);
  check(kv, {&other});
  kv.release(other);
  check(kv, {});
}

TEST_CASE("the peak of a sliding group is bounded by window and step") {
  const std::vector<KvGroup> groups = {{16, 0}, {8, 6}};
  const KvCache kv(4, groups);
  CHECK(kv.peak_blocks(0, 1000, 8) == 250);
  CHECK(kv.peak_blocks(1, 1000, 8) == 2 + 2 + 1);
  CHECK(kv.peak_blocks(1, 8, 8) == 2);
}

TEST_CASE("inserted blocks are cached: found, evicted from their end, never under a sequence") {
  const std::vector<KvGroup> groups = {{8, 0}};
  KvCache kv(4, groups);
  const std::vector<int32_t> tokens = numbers(41);
  const std::vector<uint64_t> all = {~uint64_t{0}};
  std::vector<BlockWrite> writes;
  CHECK(kv.insert("s", tokens, 3, 2, all, writes) == 0);  // nothing in front of them
  CHECK(kv.insert("s", tokens, 0, 3, all, writes) == 3);
  REQUIRE(writes.size() == 3);
  CHECK(writes[2].index == 2);
  check(kv, {});
  CHECK(kv.pool(0).num_cached() == 3);
  CHECK(kv.cached_tokens("s", tokens, 40) == 12);
  writes.clear();
  CHECK(kv.insert("s", tokens, 2, 3, all, writes) == 3);  // one is there
  CHECK(writes.size() == 2);
  CHECK(kv.cached_tokens("s", tokens, 40) == 20);

  SequenceBlocks a;
  const std::vector<int32_t> other = numbers(16, 100);
  kv.begin(a, "s", other, 15);
  compute(kv, a, other);  // evicts the end of the chain
  CHECK(kv.cached_tokens("s", tokens, 40) == 16);
  writes.clear();
  CHECK(kv.insert("s", tokens, 4, 2, all, writes) == 0);  // no room but its own chain's
  CHECK(writes.empty());
  check(kv, {&a});
  kv.release(a);
  CHECK(kv.insert("s", tokens, 4, 2, all, writes) == 2);
  CHECK(kv.cached_tokens("s", tokens, 40) == 24);
  check(kv, {});
}

TEST_CASE("blocks inserted for a sliding group are found where its window is whole") {
  const std::vector<KvGroup> groups = {{16, 0}, {8, 8}};
  KvCache kv(4, groups);
  const std::vector<int32_t> tokens = numbers(25);
  std::vector<BlockWrite> writes;
  const std::vector<uint64_t> last_two = {0x3f, 0x30};
  CHECK(kv.insert("s", tokens, 0, 6, last_two, writes) == 6);
  CHECK(writes.size() == 8);
  CHECK(kv.cached_tokens("s", tokens, 24) == 24);
  CHECK(kv.cached_tokens("s", tokens, 23) == 0);  // block 3 of the window is not there
  CHECK(kv.cached_blocks("s", tokens, 1, 6) ==
        std::vector<bool>{false, false, false, false, true, true});
  writes.clear();
  const std::vector<uint64_t> fourth = {0x0f, 0x0c};
  CHECK(kv.insert("s", tokens, 0, 4, fourth, writes) == 4);  // joins what is there
  CHECK(writes.size() == 2);
  CHECK(kv.cached_tokens("s", tokens, 23) == 20);
  SequenceBlocks a;
  kv.begin(a, "s", tokens, 24);
  CHECK(a.num_tokens == 24);
  check(kv, {&a});
  kv.release(a);
  check(kv, {});
}

TEST_CASE("blocks ahead of a sequence join it when it reaches them") {
  const std::vector<KvGroup> groups = {{16, 0}, {16, 8}};
  KvCache kv(4, groups);
  const std::vector<int32_t> tokens = numbers(33);
  const std::vector<uint64_t> all = {~uint64_t{0}, ~uint64_t{0}};
  const std::vector<uint64_t> window = {~uint64_t{0}, 0b10};
  std::vector<BlockWrite> writes;
  std::vector<BlockCopy> copies;
  SequenceBlocks seq;
  kv.begin(seq, "s", tokens, 32);
  CHECK(kv.insert_ahead(seq, 4, 2, 8, all, writes) == 0);     // not the last ones
  CHECK(kv.insert_ahead(seq, 6, 2, 8, window, writes) == 1);  // the window has a gap
  CHECK(kv.insert_ahead(seq, 6, 1, 8, all, writes) == 1);
  CHECK(kv.insert_ahead(seq, 4, 2, 8, all, writes) == 2);  // which the window does not reach
  CHECK(writes.size() == 6);
  CHECK(kv.pool(1).num_used() == 2);
  check(kv, {&seq});
  CHECK(kv.join_ahead(seq, tokens) == 0);
  // In a step that ends within a block.
  REQUIRE(kv.reserve(seq, 14, copies));
  kv.store(seq, tokens, 14);
  CHECK(kv.join_ahead(seq, tokens) == 0);
  SUBCASE("reached") {
    CHECK(kv.insert_ahead(seq, 2, 2, 8, all, writes) == 1);  // computed blocks are not replaced
    CHECK(kv.join_ahead(seq, tokens) == 32 - 14);
    CHECK(seq.num_tokens == 32);
    check(kv, {&seq});
    REQUIRE(kv.reserve(seq, 33, copies));
    kv.store(seq, tokens, 33);
    CHECK(kv.marks(seq).size() == 8);
    CHECK(kv.stored(kv.marks(seq)[7]));
    CHECK_FALSE(kv.stored(kv.marks(seq)[2]));
  }
  SUBCASE("overtaken") {
    REQUIRE(kv.reserve(seq, 33, copies));
    kv.store(seq, tokens, 33);
    CHECK(kv.join_ahead(seq, tokens) == 0);
    check(kv, {&seq});
  }
  kv.release(seq);
  CHECK(kv.pool(0).num_used() == 0);
  CHECK(kv.pool(1).num_used() == 0);
  CHECK(kv.cached_tokens("s", tokens, 32) >= 32);
  check(kv, {});
}

TEST_CASE("where all groups slide, a window is inserted into a chain that has no other blocks") {
  const std::vector<KvGroup> groups = {{16, 8}};
  KvCache kv(4, groups);
  const std::vector<int32_t> tokens = numbers(33);
  const std::vector<uint64_t> all = {~uint64_t{0}};
  std::vector<BlockWrite> writes;
  CHECK(kv.insert("s", tokens, 5, 3, all, writes) == 3);
  CHECK(kv.cached_tokens("s", tokens, 32) == 32);
  CHECK(kv.cached_tokens("s", tokens, 20) == 0);
  check(kv, {});
  SequenceBlocks other;
  kv.begin(other, "s", numbers(33, 100), 32);
  compute(kv, other, numbers(33, 100));
  kv.release(other);
  check(kv, {});
}

TEST_CASE("marks of a chain show when its nodes are gone") {
  const std::vector<KvGroup> groups = {{4, 0}};
  KvCache kv(4, groups);
  const std::vector<int32_t> tokens = numbers(9);
  SequenceBlocks a;
  kv.begin(a, "s", tokens, 8);
  compute(kv, a, tokens);
  const std::vector<NodeMark> marks = kv.marks(a);
  REQUIRE(marks.size() == 2);
  CHECK(kv.block_of(marks[1], 0) == a.tables[0][1]);
  CHECK_FALSE(kv.stored(marks[0]));
  kv.set_stored(marks[0]);
  CHECK(kv.stored(marks[0]));
  kv.clear_stored();
  CHECK_FALSE(kv.stored(marks[0]));
  kv.release(a);
  SequenceBlocks b;
  const std::vector<int32_t> other = numbers(16, 100);
  kv.begin(b, "s", other, 15);
  compute(kv, b, other);
  CHECK_FALSE(kv.alive(marks[0]));
  CHECK_FALSE(kv.alive(marks[1]));
  kv.release(b);
}

TEST_CASE("a fork shares its parent's partial block, and the front of a full one") {
  const std::vector<KvGroup> groups = {{16, 0}, {12, 8}};
  KvCache kv(4, groups);
  const std::vector<int32_t> tokens = numbers(11);
  SequenceBlocks parent;
  kv.begin(parent, "s", tokens, 10);
  compute(kv, parent, tokens);
  for (int32_t length = 1; length <= 11; ++length) {
    CAPTURE(length);
    SequenceBlocks child;
    kv.begin(child, "s", tokens, length);
    const int32_t shared = kv.share_partial(parent, tokens, child, tokens, length);
    // The window of the second group has passed everything before token 3.
    const int32_t begun = length / 4 * 4;
    const bool there = begun >= 4 || shared == 0;
    CHECK(there);
    CHECK(child.num_tokens == (shared > 0 ? length : kv.cached_tokens("s", tokens, length)));
    check(kv, {&parent, &child});
    // The first to write gets its own block; the other's stays unchanged.
    std::vector<int32_t> other = tokens;
    other.resize(static_cast<size_t>(child.num_tokens));
    other.insert(other.end(), {90, 91, 92, 93, 94});
    const std::vector<BlockCopy> copies = compute(kv, child, other);
    CHECK(copies.size() == (shared > 0 ? 2 : 0));
    for (const BlockCopy& copy : copies) {
      const auto group = static_cast<size_t>(copy.group);
      CHECK(copy.src == parent.tables[group][static_cast<size_t>(begun / 4)]);
      CHECK(copy.dst == child.tables[group][static_cast<size_t>(begun / 4)]);
    }
    check(kv, {&parent, &child});
    kv.release(child);
  }
  check(kv, {&parent});
  kv.release(parent);
}

TEST_CASE("the front of a full block is not written to after its owner has gone") {
  const std::vector<KvGroup> groups = {{16, 0}};
  KvCache kv(4, groups);
  const std::vector<int32_t> tokens = numbers(9);
  SequenceBlocks parent, child;
  kv.begin(parent, "s", tokens, 8);
  compute(kv, parent, tokens);
  kv.begin(child, "s", tokens, 6);
  CHECK(child.num_tokens == 4);
  CHECK(kv.share_partial(parent, tokens, child, tokens, 6) == 2);
  const int32_t shared = child.tables[0][1];
  kv.release(parent);
  check(kv, {&child});
  std::vector<int32_t> other = tokens;
  other[6] = 99;
  const std::vector<BlockCopy> copies = compute(kv, child, other);
  REQUIRE(copies.size() == 1);
  CHECK(copies[0].src == shared);
  CHECK(child.tables[0][1] != shared);
  check(kv, {&child});
  CHECK(kv.cached_tokens("s", tokens, 8) == 8);  // as it was
  // Nothing is shared where the tokens differ, or where nothing follows.
  SequenceBlocks differs;
  std::vector<int32_t> elsewhere = other;
  elsewhere[4] = 50;
  kv.begin(differs, "s", elsewhere, 8);
  CHECK(kv.share_partial(child, other, differs, elsewhere, 8) == 0);
  kv.release(differs);
  kv.release(child);
  check(kv, {});
}

}  // namespace
}  // namespace hearth::engine
