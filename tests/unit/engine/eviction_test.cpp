// Which piece of KV is evicted: the ranking compared with a plain search, and what eviction by
// value saves over last use alone on a trace.

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "engine/cost/step_cost.h"
#include "engine/kv/kv_cache.h"
#include "engine/kv/prefix_value.h"
#include "engine/store/chunk_ranking.h"

namespace hearth::engine {
namespace {

TEST_CASE("value rises with cost, use and age, and falls with bytes") {
  CHECK(prefix_value(5, 0, 100, 1) == 5);
  CHECK(prefix_value(5, 1, 100, 10) == 15);
  CHECK(prefix_value(5, 3, 100, 10) == 35);
  CHECK(prefix_value(0, 1'000'000, 1, 1) == kMaxUsesCounted);
  CHECK(prefix_value(0, -5, 1, 0) == 0);
}

// ---- The ranking ----------------------------------------------------------------------------

Hash128 name(uint64_t n) { return {n, n * 31}; }

RankedChunk chunk(int64_t row, uint64_t parent, uint64_t last, double value,
                  const std::string& owner = "a") {
  RankedChunk out;
  out.row = row;
  out.owner = owner;
  out.bytes = 1;
  out.recompute_us = 1;
  out.value = value;
  out.parent = name(parent);
  out.last = name(last);
  return out;
}

TEST_CASE("chains are evicted from their ends, whatever their values") {
  ChunkRanking ranking;
  ranking.add(chunk(1, 100, 101, 1));
  ranking.add(chunk(2, 101, 102, 9));
  ranking.add(chunk(3, 101, 103, 5));
  ranking.add(chunk(4, 200, 201, 7));
  for (const int64_t row : {3, 4, 2, 1}) {
    REQUIRE(ranking.next("a", 0) != nullptr);
    CHECK(ranking.next("a", 0)->row == row);
    ranking.evict(row);
  }
  CHECK(ranking.next("a", 0) == nullptr);
  CHECK(ranking.next("b", 0) == nullptr);
  // A new entry has the age of the evicted one.
  CHECK(ranking.value_now("a", 0, 3, 1) == 9 + 3);
  CHECK(ranking.value_now("b", 0, 3, 1) == 3);
}

TEST_CASE("a row that continues itself, and values that are not numbers") {
  ChunkRanking ranking;
  ranking.add(chunk(1, 7, 7, std::numeric_limits<double>::quiet_NaN()));
  ranking.add(chunk(2, 8, 9, std::numeric_limits<double>::infinity()));
  ranking.add(chunk(3, 8, 10, -5));
  ranking.resume();
  for (int i = 0; i < 3; ++i) {
    REQUIRE(ranking.next("a", 0) != nullptr);
    ranking.evict(ranking.next("a", 0)->row);
  }
  CHECK(ranking.size() == 0);
}

TEST_CASE("the ranking equals a search through all") {
  for (uint32_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto below = [&](uint32_t n) { return static_cast<int64_t>(random() % n); };
    ChunkRanking ranking;
    std::map<int64_t, RankedChunk> rows;
    for (int step = 0; step < 300; ++step) {
      const int64_t row = below(20);
      const int64_t now_s = step;
      switch (below(5)) {
        case 0: {
          // Names are few: some have several rows, and several children.
          RankedChunk added =
              chunk(row, static_cast<uint64_t>(below(6)), static_cast<uint64_t>(6 + below(6)),
                    static_cast<double>(below(4)), below(2) == 0 ? "a" : "b");
          if (below(2) == 0) added.parent = name(static_cast<uint64_t>(6 + below(3)));
          added.pinned_until_s = below(4) == 0 ? now_s + below(30) : 0;
          rows[row] = added;
          ranking.add(added);
          break;
        }
        case 1:
          rows.erase(row);
          ranking.remove(row);
          break;
        case 2:
          if (rows.contains(row)) {
            rows[row].value = ranking.use(row, now_s);
            rows[row].used_s = now_s;
          }
          break;
        case 3: {
          const int64_t until_s = now_s + below(20);
          if (rows.contains(row)) {
            int64_t& pinned = rows[row].pinned_until_s;
            if (pinned <= now_s) pinned = 0;
            pinned = std::max(pinned, until_s);
          }
          ranking.next("a", now_s);  // lets go those whose time is over
          ranking.pin(row, until_s);
          break;
        }
        default: break;
      }
      for (const char* owner : {"a", "b"}) {
        const RankedChunk* best = nullptr;
        for (const auto& [id, each] : rows) {
          const bool continued = std::ranges::any_of(rows, [&](const auto& other) {
            return other.second.parent == each.last && other.second.parent != other.second.last;
          });
          if (each.owner != owner || continued || each.pinned_until_s > now_s) continue;
          const auto key = [](const RankedChunk& c) {
            return std::tuple(c.value, c.used_s, -c.index, c.row);
          };
          if (best == nullptr || key(each) < key(*best)) best = &each;
        }
        const RankedChunk* next = ranking.next(owner, now_s);
        REQUIRE((next == nullptr) == (best == nullptr));
        if (best != nullptr) REQUIRE(next->row == best->row);
      }
    }
  }
}

// ---- Savings ---------------------------------------------------------------------------------

struct Ask {
  std::vector<int32_t> tokens;  ///< prompt and answer
  int32_t prompt = 0;
};

/// Requests as one user's programs make them. Some begin with one of a few long instructions, most
/// often the same ones, and continue for a few turns; a share are documents that are read once.
std::vector<Ask> make_trace(uint32_t seed, int32_t requests, int32_t documents_percent) {
  std::mt19937 random(seed);
  const auto below = [&](int32_t n) {
    return static_cast<int32_t>(random() % static_cast<uint32_t>(n));
  };
  int32_t fresh = 0;
  const auto append = [&](std::vector<int32_t>& tokens, int32_t count) {
    for (int32_t i = 0; i < count; ++i) tokens.push_back(fresh++);
  };
  std::vector<std::vector<int32_t>> instructions(8);
  for (auto& tokens : instructions) append(tokens, 300 + below(2100));
  struct Talk {
    std::vector<int32_t> tokens;
    int32_t turns = 0;
  };
  std::vector<Talk> talks;
  std::vector<Ask> out;
  for (int32_t i = 0; i < requests; ++i) {
    Talk talk;
    if (below(100) < documents_percent) {
      append(talk.tokens, 500 + below(3000));
    } else if (!talks.empty() && below(2) == 0) {
      const auto which = static_cast<size_t>(below(static_cast<int32_t>(talks.size())));
      talk = talks[which];
      talks.erase(talks.begin() + static_cast<ptrdiff_t>(which));
    } else {
      // The first is requested about as often as all later ones together.
      size_t which = 0;
      while (which + 1 < instructions.size() && below(2) == 0) ++which;
      talk.tokens = instructions[which];
    }
    const bool document = talk.turns == 0 && talk.tokens.size() > 0 &&
                          std::ranges::none_of(instructions, [&](const auto& tokens) {
                            return tokens.front() == talk.tokens.front();
                          });
    append(talk.tokens, 20 + below(200));
    Ask ask;
    ask.prompt = static_cast<int32_t>(talk.tokens.size());
    append(talk.tokens, 50 + below(150));
    ask.tokens = talk.tokens;
    out.push_back(std::move(ask));
    if (!document && ++talk.turns < 2 + below(5)) talks.push_back(std::move(talk));
    if (talks.size() > 6) talks.erase(talks.begin());
  }
  return out;
}

/// 1 ms a token at the start, 2 at position 4000.
StepCost measured_cost() {
  StepCost cost;
  for (int round = 0; round < 3; ++round) {
    for (int32_t first = 0; first < 8192; first += 256) {
      const PrefillRun run{first, 256};
      cost.measured(0, std::span(&run, 1), 256 * (1000 + first / 4));
    }
  }
  return cost;
}

/// Share of the time to compute all prompts that cached prefixes save.
double saved_in_memory(const std::vector<Ask>& trace, const StepCost& cost, bool by_value) {
  constexpr int32_t kBlock = 16;
  const std::vector<KvGroup> groups = {{600, 0}};
  KvCache kv(kBlock, groups);
  if (by_value) kv.set_cost(&cost);
  double saved = 0;
  double all = 0;
  for (const Ask& ask : trace) {
    SequenceBlocks seq;
    kv.begin(seq, "s", ask.tokens, ask.prompt - 1);
    kv.count_uses(seq);
    saved += cost.prefill_us({0, seq.num_tokens});
    all += cost.prefill_us({0, ask.prompt});
    std::vector<BlockCopy> copies;
    const auto size = static_cast<int32_t>(ask.tokens.size());
    REQUIRE(kv.reserve(seq, size, copies));
    kv.store(seq, ask.tokens, size - 1);
    kv.release(seq);
  }
  kv.check_integrity({});
  return saved / all;
}

double saved_on_disk(const std::vector<Ask>& trace, const StepCost& cost, bool by_value) {
  constexpr int32_t kChunk = 128;
  constexpr size_t kBudget = 75;  // chunks
  ChunkRanking ranking;
  std::map<int32_t, int64_t> row_of;  // by the chunk's last token: tokens are never used again
  std::map<int64_t, int32_t> last_of;
  int64_t next_row = 1;
  int64_t now_s = 0;
  double saved = 0;
  double all = 0;
  for (const Ask& ask : trace) {
    ++now_s;
    int32_t found = 0;
    bool hit = true;
    for (int32_t first = 0; first + kChunk <= static_cast<int32_t>(ask.tokens.size());
         first += kChunk) {
      const int32_t last = ask.tokens[static_cast<size_t>(first + kChunk - 1)];
      const auto at = row_of.find(last);
      hit = hit && at != row_of.end() && first + kChunk < ask.prompt;
      if (hit) found = first + kChunk;
      if (at != row_of.end()) {
        ranking.use(at->second, now_s);
        continue;
      }
      RankedChunk added = chunk(
          next_row++,
          first == 0 ? 0 : static_cast<uint64_t>(ask.tokens[static_cast<size_t>(first) - 1]) + 1,
          static_cast<uint64_t>(last) + 1, 0);
      added.index = first / kChunk;
      added.used_s = now_s;
      added.recompute_us = by_value ? cost.prefill_us({first, kChunk}) : 0;
      added.value = ranking.value_now("a", 0, added.recompute_us, 1);
      row_of[last] = added.row;
      last_of[added.row] = last;
      ranking.add(std::move(added));
    }
    saved += cost.prefill_us({0, found});
    all += cost.prefill_us({0, ask.prompt});
    while (ranking.size() > kBudget) {
      const int64_t row = ranking.next("a", now_s)->row;
      ranking.evict(row);
      row_of.erase(last_of[row]);
      last_of.erase(row);
    }
  }
  return saved / all;
}

TEST_CASE("eviction by value saves more computing than by last use, over a replayed trace") {
  const StepCost cost = measured_cost();
  double memory[2] = {};
  double disk[2] = {};
  constexpr int kTraces = 4;
  for (uint32_t seed = 1; seed <= kTraces; ++seed) {
    const std::vector<Ask> trace = make_trace(seed, 400, 35);
    for (const bool by_value : {false, true}) {
      memory[by_value] += saved_in_memory(trace, cost, by_value) / kTraces;
      disk[by_value] += saved_on_disk(trace, cost, by_value) / kTraces;
    }
  }
  MESSAGE("memory: " << memory[0] << " by last use, " << memory[1] << " by value");
  MESSAGE("disk: " << disk[0] << " by last use, " << disk[1] << " by value");
  CHECK(memory[1] > 1.1 * memory[0]);
  CHECK(disk[1] > 1.1 * disk[0]);
}

TEST_CASE("where last use is all that matters, eviction by value is as good") {
  const StepCost cost = measured_cost();
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    const std::vector<Ask> trace = make_trace(seed, 400, 0);
    CHECK(saved_in_memory(trace, cost, true) > 0.97 * saved_in_memory(trace, cost, false));
    CHECK(saved_on_disk(trace, cost, true) > 0.97 * saved_on_disk(trace, cost, false));
  }
}

TEST_CASE("entries that were popular once are evicted in the end") {
  const StepCost cost = measured_cost();
  const std::vector<KvGroup> groups = {{64, 0}};
  KvCache kv(16, groups);
  kv.set_cost(&cost);
  const auto ask = [&](int32_t first) {
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 32 * 16; ++i) tokens.push_back(first + i);
    SequenceBlocks seq;
    kv.begin(seq, "s", tokens, 32 * 16 - 1);
    const int32_t cached = seq.num_tokens;
    kv.count_uses(seq);
    std::vector<BlockCopy> copies;
    REQUIRE(kv.reserve(seq, 32 * 16, copies));
    kv.store(seq, tokens, 32 * 16);
    kv.release(seq);
    return cached;
  };
  for (int i = 0; i < 100; ++i) ask(0);
  int32_t turns = 1;
  while (turns < 500 &&
         kv.cached_tokens(
             "s", std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, 16) >
             0) {
    ask(1000 * turns++);
  }
  CHECK(turns > 10);
  CHECK(turns < 200);
}

}  // namespace
}  // namespace hearth::engine
