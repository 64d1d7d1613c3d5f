// From the engine's cells to runs: the whole map, and then the changes.

#include "daemon/worker/observe/events_publisher.h"

#include <doctest/doctest.h>

#include <random>

namespace hearth::worker {
namespace {

using engine::BlockCell;
using engine::BlockState;

BlockCell cell(uint64_t request, int32_t position) {
  return {request, position, BlockState::kUsed, 1, false};
}

BlockState state_of(ipc::WatchedBlock state) {
  switch (state) {
    case ipc::WatchedBlock::kUsed: return BlockState::kUsed;
    case ipc::WatchedBlock::kShared: return BlockState::kShared;
    case ipc::WatchedBlock::kCached: return BlockState::kCached;
    case ipc::WatchedBlock::kPinned: return BlockState::kPinned;
    case ipc::WatchedBlock::kMoving: return BlockState::kMoving;
    default: return BlockState::kFree;
  }
}

TEST_CASE("consecutive blocks of one sequence are one run, and free ones none") {
  std::vector<BlockCell> cells(100);
  for (int32_t i = 0; i < 40; ++i) cells[static_cast<size_t>(10 + i)] = cell(7, i);
  cells[60] = {0, 0, BlockState::kCached, 0, false};
  cells[61] = {0, 0, BlockState::kCached, 0, false};
  const std::vector<ipc::BlockRun> runs = block_runs({}, cells, true);
  REQUIRE(runs.size() == 2);
  CHECK(runs[0].first == 10);
  CHECK(runs[0].count == 40);
  CHECK(runs[0].position == 0);
  CHECK(runs[1].count == 2);
  CHECK(block_runs(cells, cells, false).empty());
  std::vector<BlockCell> next = cells;
  next[20] = {};
  const std::vector<ipc::BlockRun> changed = block_runs(cells, next, false);
  REQUIRE(changed.size() == 1);
  CHECK(changed[0].state == ipc::WatchedBlock::kFree);
}

TEST_CASE("random maps: the published changes add up to the map") {
  std::mt19937 random(3);
  EventsPublisher publisher;
  publisher.start();
  std::vector<BlockCell> seen;
  engine::EngineWatch watch;
  watch.pools.resize(1);
  watch.pools[0].resize(500);
  for (int message = 0; message < 120; ++message) {
    for (int change = 0; change < 30; ++change) {
      BlockCell& target = watch.pools[0][random() % 500];
      switch (random() % 7) {
        case 6: target = {0, 0, BlockState::kPinned, 0, true}; break;
        case 0: target = {}; break;
        case 1: target = {0, 0, BlockState::kCached, 0, false}; break;
        case 2: target = {0, 0, BlockState::kCached, 0, true}; break;
        case 3: target = {0, 0, BlockState::kMoving, 0, true}; break;
        default: target = cell(1 + random() % 3, static_cast<int32_t>(random() % 50));
      }
    }
    if (message == 70) publisher.start();  // a new listener
    const auto update =
        ipc::decode_watch(publisher.encode(std::make_shared<engine::EngineWatch>(watch)));
    REQUIRE(update.ok());
    CHECK(update->sequence == static_cast<uint64_t>(2 * message + 1));
    // Between two maps there may be messages without one.
    engine::EngineWatch mapless;
    mapless.has_prefixes = true;
    mapless.prefixes.push_back({{1, 2}, {3, 4}, 7, 5, 2, true});
    const auto tree =
        ipc::decode_watch(publisher.encode(std::make_shared<engine::EngineWatch>(mapless)));
    REQUIRE(tree.ok());
    CHECK(tree->pools.empty());
    REQUIRE(tree->prefixes.size() == 1);
    CHECK(tree->prefixes[0].name_low == 1);
    CHECK(tree->prefixes[0].name_high == 2);
    CHECK(tree->prefixes[0].end_block == 7);
    CHECK(tree->prefixes[0].pinned);
    const ipc::PoolUpdate& pool = update->pools[0];
    CHECK(pool.full == (message == 0 || message == 50 || message == 70));
    if (pool.full) seen.assign(500, {});
    for (const ipc::BlockRun& run : pool.runs) {
      for (uint32_t i = 0; i < run.count; ++i) {
        const int32_t step = run.request != 0 ? static_cast<int32_t>(i) : 0;
        seen[run.first + i] = {run.request, run.position + step, state_of(run.state), run.refs,
                               run.on_disk};
      }
    }
    CHECK(seen == watch.pools[0]);
  }
}

TEST_CASE("gaps between tokens are counted while a client listens, and reported once") {
  EventsPublisher publisher;
  publisher.add_gap(5);
  publisher.start();
  publisher.add_gap(20);
  publisher.add_gap(20);
  publisher.add_gap(90'000);
  const auto published_gaps = [&] {
    const auto watch = std::make_shared<engine::EngineWatch>();
    return ipc::decode_watch(publisher.encode(watch)).value().gaps;
  };
  CHECK(published_gaps() == std::vector<ipc::WatchedGaps>{{20, 2}, {ipc::gap_bucket(90'000), 1}});
  CHECK(published_gaps().empty());
  publisher.add_gap(7);
  publisher.stop();
  publisher.start();
  CHECK(published_gaps().empty());
}

}  // namespace
}  // namespace hearth::worker
