// The recurrent group of KvCache: states of sequences, and their snapshots in the prefix index.

#include <doctest/doctest.h>

#include <numeric>
#include <vector>

#include "engine/kv/kv_cache.h"

namespace hearth::engine {
namespace {

constexpr int32_t kStates = 1;  // the group
constexpr int32_t kSize = 4;    // tokens of a block

KvCache cache(int32_t states) {
  const std::vector<KvGroup> groups = {{.num_blocks = 64},
                                       {.num_blocks = states, .recurrent = true}};
  return KvCache(kSize, groups);
}

std::vector<int32_t> tokens_from(int32_t count, int32_t first = 0) {
  std::vector<int32_t> out(static_cast<size_t>(count));
  std::iota(out.begin(), out.end(), first);
  return out;
}

/// One step up to `end`; true: there was room.
bool step(KvCache& kv, SequenceBlocks& seq, const std::vector<int32_t>& tokens, int32_t end) {
  std::vector<BlockCopy> copies;
  if (!kv.reserve(seq, end, copies)) return false;
  for (const BlockCopy& copy : copies) CHECK(copy.group != kStates);
  kv.store(seq, tokens, end);
  return true;
}

void check_states(const KvCache& kv, std::initializer_list<const SequenceBlocks*> live) {
  kv.check_integrity(std::vector<const SequenceBlocks*>(live));
}

TEST_CASE("a prefix is found up to the last block border that has a snapshot") {
  KvCache kv = cache(8);
  const std::vector<int32_t> tokens = tokens_from(22);
  SequenceBlocks a;
  kv.begin(a, "s", tokens, 21);
  CHECK(a.state.current == kNoBlock);
  REQUIRE(step(kv, a, tokens, 10));  // snapshot at 8, within the step
  CHECK(a.state.tokens == 10);
  CHECK(a.state.border_tokens == 8);
  CHECK(a.state.border != a.state.current);
  CHECK(kv.cached_tokens("s", tokens, 21) == 8);
  REQUIRE(step(kv, a, tokens, 20));  // at its end
  CHECK(a.state.border == a.state.current);
  CHECK(kv.cached_tokens("s", tokens, 21) == 20);
  CHECK(kv.cached_tokens("s", tokens, 19) == 0);  // that at 8 was dropped
  check_states(kv, {&a});
  kv.release(a);
  CHECK(kv.pool(kStates).num_cached() == 1);
  CHECK(kv.pool(kStates).num_used() == 0);

  SequenceBlocks b;
  kv.begin(b, "s", tokens, 21);
  CHECK(b.num_tokens == 20);
  CHECK(b.state.tokens == 20);
  const int32_t snapshot = b.state.current;
  REQUIRE(step(kv, b, tokens, 22));
  CHECK(b.state.current != snapshot);  // a snapshot is never changed
  check_states(kv, {&b});
  kv.release(b);
  check_states(kv, {});
}

TEST_CASE("a state is changed in place where nothing else refers to it") {
  KvCache kv = cache(8);
  const std::vector<int32_t> tokens = tokens_from(12);
  SequenceBlocks a;
  kv.begin(a, "s", tokens, 11);
  REQUIRE(step(kv, a, tokens, 1));
  const int32_t first = a.state.current;
  REQUIRE(step(kv, a, tokens, 2));
  CHECK(a.state.current == first);
  SequenceBlocks child;
  kv.fork(a, child);
  CHECK(child.state.current == first);
  REQUIRE(step(kv, child, tokens, 3));
  CHECK(child.state.current != first);
  REQUIRE(step(kv, a, tokens, 3));
  CHECK(a.state.current == first);
  check_states(kv, {&a, &child});
  kv.release(a);
  kv.release(child);
  CHECK(kv.pool(kStates).num_free() == 8);
}

TEST_CASE("a state that others refer to is copied before a step names it as written") {
  KvCache kv = cache(4);
  const std::vector<int32_t> tokens = tokens_from(12);
  SequenceBlocks a, b;
  kv.begin(a, "s", tokens, 11);
  REQUIRE(step(kv, a, tokens, 8));  // the state is the snapshot at 8
  const int32_t shared = a.state.current;
  std::vector<BlockCopy> copies;
  REQUIRE(kv.unshare_state(a, copies));
  REQUIRE(copies.size() == 1);
  CHECK(copies[0].group == kStates);
  CHECK(copies[0].src == shared);
  CHECK(copies[0].dst == a.state.current);
  CHECK(a.state.border == shared);
  REQUIRE(kv.unshare_state(a, copies));
  CHECK(copies.size() == 1);  // it is its own now
  kv.fork(a, b);
  REQUIRE(kv.unshare_state(b, copies));
  CHECK(b.state.current != a.state.current);
  check_states(kv, {&a, &b});
  SequenceBlocks c;
  kv.fork(a, c);
  REQUIRE(kv.unshare_state(c, copies));
  SequenceBlocks d;
  kv.fork(c, d);
  const int32_t before = d.state.current;
  CHECK_FALSE(kv.unshare_state(d, copies));  // the pool is used up
  CHECK(d.state.current == before);
  check_states(kv, {&a, &b, &c, &d});
  for (SequenceBlocks* seq : {&a, &b, &c, &d}) kv.release(*seq);
  check_states(kv, {});
}

TEST_CASE("snapshots are kept at multiples of 2048, at the prompt's end and at marks") {
  const std::vector<KvGroup> groups = {{.num_blocks = 300}, {.num_blocks = 8, .recurrent = true}};
  KvCache kv(16, groups);
  const std::vector<int32_t> tokens = tokens_from(4200);
  SequenceBlocks a;
  kv.begin(a, "s", tokens, 4199);
  const std::vector<int32_t> wanted = {3000, 4100};
  kv.want_snapshots(a, wanted);
  CHECK(kv.step_end(a, 0, 4200) == kSnapshotTokens);
  CHECK(kv.step_end(a, 2048, 4200) == 2992);
  CHECK(kv.step_end(a, 2992, 4200) == 4096);  // 4100's border, and a multiple
  CHECK(kv.step_end(a, 4096, 4200) == 4200);
  CHECK(kv.step_end(a, 2992, 4100) == 4100);  // the last border gets one anyway
  int32_t at = 0;
  while (at < 4200) {
    at = kv.step_end(a, at, std::min(4200, at + 700));
    REQUIRE(step(kv, a, tokens, at));
  }
  check_states(kv, {&a});
  kv.release(a);
  for (const int32_t found : {2048, 2992, 4096, 4192}) {
    CHECK(kv.cached_tokens("s", tokens, found) == found);
  }
  CHECK(kv.cached_tokens("s", tokens, 2047) == 0);
  CHECK(kv.pool(kStates).num_cached() == 4);
}

TEST_CASE("where a second prompt branches off, a snapshot is taken") {
  KvCache kv = cache(16);
  const std::vector<int32_t> tokens = tokens_from(30);
  SequenceBlocks a;
  kv.begin(a, "s", tokens, 29);
  REQUIRE(step(kv, a, tokens, 30));
  std::vector<int32_t> other = tokens;
  other[18] = 99;  // equal up to the border at 16
  SequenceBlocks b;
  kv.begin(b, "s", other, 29);
  CHECK(b.num_tokens == 0);  // no state in between
  CHECK(kv.step_end(b, 0, 30) == 16);
  REQUIRE(step(kv, b, other, 16));
  REQUIRE(step(kv, b, other, 30));
  check_states(kv, {&a, &b});
  SequenceBlocks c;
  std::vector<int32_t> third = tokens;
  third[17] = 98;
  kv.begin(c, "s", third, 29);
  CHECK(c.num_tokens == 16);
  check_states(kv, {&a, &b, &c});
  for (SequenceBlocks* seq : {&a, &b, &c}) kv.release(*seq);
}

TEST_CASE("accepted drafts are ahead of the state until the next step replays them") {
  KvCache kv = cache(8);
  const std::vector<int32_t> tokens = tokens_from(12);
  SequenceBlocks a;
  kv.begin(a, "s", tokens, 11);
  std::vector<BlockCopy> copies;
  REQUIRE(kv.reserve(a, 6, copies));
  REQUIRE(kv.reserve(a, 9, copies, 3));  // the same step, with three drafts
  CHECK(a.state.next_tokens == 6);
  kv.store(a, tokens, 6);
  kv.store(a, tokens, 8);  // two of them are right
  CHECK(a.num_tokens == 8);
  CHECK(a.state.tokens == 6);
  kv.trim(a);
  check_states(kv, {&a});
  CHECK(kv.cached_tokens("s", tokens, 11) == 4);
  REQUIRE(step(kv, a, tokens, 9));  // its snapshot, at 8, lies within what is replayed
  CHECK(a.state.tokens == 9);
  CHECK(a.state.border_tokens == 8);
  CHECK(kv.cached_tokens("s", tokens, 11) == 8);
  check_states(kv, {&a});
  kv.release(a);
}

TEST_CASE("without a free block nothing changes; snapshots are evicted for states") {
  KvCache kv = cache(3);
  const std::vector<int32_t> tokens = tokens_from(20);
  SequenceBlocks a;
  kv.begin(a, "s", tokens, 19);
  REQUIRE(step(kv, a, tokens, 6));
  REQUIRE(step(kv, a, tokens, 10));  // state, snapshot, and the new one for a moment
  CHECK(kv.pool(kStates).num_used() == 2);
  SequenceBlocks b;
  const std::vector<int32_t> other = tokens_from(20, 100);
  kv.begin(b, "s", other, 19);
  CHECK_FALSE(step(kv, b, other, 6));  // a state and a snapshot: two blocks
  CHECK(b.state.current == kNoBlock);
  CHECK(b.num_tokens == 0);
  check_states(kv, {&a, &b});
  kv.release(a);
  REQUIRE(step(kv, b, other, 6));
  check_states(kv, {&b});
  kv.release(b);
  check_states(kv, {});
}

TEST_CASE("restored snapshots continue a chain whose blocks are there, and no other") {
  KvCache kv = cache(8);
  const std::vector<int32_t> tokens = tokens_from(16);
  std::vector<BlockWrite> writes;
  const std::vector<uint64_t> state = {0, 0b1000};
  CHECK(kv.insert("s", tokens, 0, 4, state, writes) == 0);
  const std::vector<uint64_t> blocks = {0b1111, 0};
  CHECK(kv.insert("s", tokens, 0, 4, blocks, writes) == 4);
  CHECK(kv.cached_tokens("s", tokens, 16) == 0);
  writes.clear();
  CHECK(kv.insert("s", tokens, 0, 4, state, writes) == 4);
  REQUIRE(writes.size() == 1);
  CHECK(writes.front().group == kStates);
  CHECK(writes.front().index == 3);
  CHECK(kv.cached_tokens("s", tokens, 16) == 16);
  check_states(kv, {});
}

TEST_CASE("a model of states alone") {
  const std::vector<KvGroup> groups = {{.num_blocks = 6, .recurrent = true}};
  KvCache kv(kSize, groups);
  const std::vector<int32_t> tokens = tokens_from(40);
  SequenceBlocks a;
  kv.begin(a, "s", tokens, 39);
  for (int32_t end = 3; end <= 39; end += 3) {
    std::vector<BlockCopy> copies;
    REQUIRE(kv.reserve(a, end, copies));
    kv.store(a, tokens, end);
    check_states(kv, {&a});
  }
  kv.release(a);
  CHECK(kv.cached_tokens("s", tokens, 39) == 36);
  CHECK(kv.pool(0).num_cached() == 1);
  std::vector<BlockWrite> writes;
  const std::vector<int32_t> other = tokens_from(40, 100);
  const std::vector<uint64_t> state = {0b100};
  CHECK(kv.insert("s", other, 5, 3, state, writes) == 3);
  CHECK(kv.cached_tokens("s", other, 39) == 32);
  check_states(kv, {});
}

}  // namespace
}  // namespace hearth::engine
