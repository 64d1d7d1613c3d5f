#pragma once
// The data of the engine that a dashboard shows: a record per step, the state of every KV block,
// the progress of every live request. Nothing is recorded while no dashboard is connected. Owned by
// the engine thread; `take` returns an owned value.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/kv/chain_hash.h"
#include "engine/request.h"
#include "engine/store/block_store.h"
#include "kernels/base/clock.h"
#include "kernels/base/mailbox.h"

namespace hearth::engine {

class Scheduler;
class KvCache;
struct StepPlan;

struct StepChunk {
  RequestId request = 0;
  int32_t tokens = 0;
};

struct StepRecord {
  uint64_t step = 0;  ///< its number
  int64_t end_us = 0;
  int64_t duration_us = 0;
  int32_t decode_rows = 0;
  int32_t draft_rows = 0;
  int32_t accepted = 0;             ///< draft tokens that were right
  std::vector<StepChunk> prefills;  ///< in the order of the batch
  int32_t prefills_unlisted = 0;    ///< tokens of chunks beyond StepRecorder::kMaxChunks
  int32_t running = 0;              ///< sequences, after the step
  int32_t waiting = 0;
  int32_t preempted = 0;  ///< sequences preempted since the step before
};

/// kPinned: cached, and the store keeps it from eviction.
enum class BlockState : uint8_t { kFree, kUsed, kShared, kCached, kPinned, kMoving };

struct BlockCell {
  RequestId request = 0;  ///< one of those that refer to it; 0: none
  int32_t position = 0;   ///< its place in that sequence's table
  BlockState state = BlockState::kFree;
  uint8_t refs = 0;      ///< 255: that many or more
  bool on_disk = false;  ///< also in the store
  bool operator==(const BlockCell&) const = default;
};

/// Blocks that follow one another in the prefix index, with nothing branching off between them.
struct PrefixRun {
  Hash128 name;    ///< of the last one
  Hash128 parent;  ///< of the block before the run, or the root
  int32_t end_block = 0;
  int32_t num_blocks = 0;  ///< held in memory, of any group
  int32_t in_use = 0;      ///< of those
  bool pinned = false;     ///< its end is
  bool operator==(const PrefixRun&) const = default;
};

/// A block whose bytes were copied to the store or from it.
struct MovedBlock {
  int32_t group = 0;
  int32_t block = 0;
};

struct RequestWatch {
  RequestId id = 0;
  std::string waiting_for;  ///< empty: it runs
  int32_t queue_position = 0;
  int32_t prompt_tokens = 0;
  int32_t prompt_done = 0;  ///< with KV
  int32_t cached_tokens = 0;
  int32_t output_tokens = 0;
  int32_t drafted_tokens = 0;
  int32_t accepted_tokens = 0;
  int32_t preemptions = 0;
  int64_t queue_us = 0;  ///< waited before its first rows, so far
  int64_t ttft_us = -1;  ///< -1: no token yet
  /// Of sample 0's canvas, a character per token: '.' masked, '0' to '9' how sure it was. At most
  /// kShownCanvas of them, the block being filled included.
  std::string canvas;
  int32_t canvas_first = 0;  ///< token of the first character
  int32_t pass = 0, passes = 0;
  static constexpr int32_t kShownCanvas = 256;
};

struct EngineWatch {
  int64_t now_us = 0;
  std::vector<StepRecord> steps;  ///< since the last one taken, oldest first
  uint64_t steps_dropped = 0;     ///< of those, not kept
  int32_t block_size = 0;
  std::vector<std::vector<BlockCell>> pools;  ///< per layer group, every block; empty: not due
  std::vector<RequestWatch> requests;
  bool has_prefixes = false;
  std::vector<PrefixRun> prefixes;
};

/// Connects the engine with a dashboard: while `wanted`, an EngineWatch is posted before each
/// SnapshotEvent. Any thread.
struct WatchPort {
  std::atomic<bool> wanted{false};
  Mailbox<std::shared_ptr<const EngineWatch>> out{16};
};

/// Runs also end where chunks of the store end (every `chunk_blocks` blocks; 0: no store), so that
/// both use the same names. At most `limit`.
std::vector<PrefixRun> prefix_runs(const KvCache& kv, int32_t chunk_blocks, size_t limit);
/// For every node of the prefix index, whether it belongs to one of these chunks.
std::vector<bool> pinned_nodes(const KvCache& kv, std::span<const PinnedChunk> chunks);

class StepRecorder {
 public:
  static constexpr size_t kMaxSteps = 2048;  ///< kept between two takes
  static constexpr size_t kMaxChunks = 64;   ///< listed per step
  static constexpr size_t kMaxRequests = 1024;
  static constexpr size_t kMaxPrefixes = 4096;
  static constexpr size_t kMaxMoved = 1 << 16;
  /// Maps and trees are made no more often than this, and take at most one part in kCostShare of
  /// the engine's time, however many blocks there are.
  static constexpr int64_t kMapEveryUs = 90'000;
  static constexpr int64_t kPrefixesEveryUs = 2'000'000;
  static constexpr int64_t kCostShare = 400;

  explicit StepRecorder(const Clock& clock) : clock_(clock) {}

  void watch(bool on);
  bool on() const { return on_; }
  /// Only while on().
  void add(const StepPlan& plan, const Scheduler& scheduler, uint64_t step, int64_t end_us,
           int64_t duration_us, int32_t accepted);
  std::shared_ptr<const EngineWatch> take(const Scheduler& scheduler, const KvCache& kv,
                                          int32_t chunk_blocks,
                                          std::span<const PinnedChunk> pinned);
  /// The watch could not be posted.
  void lost(const EngineWatch& watch) { dropped_ += watch.steps_dropped + watch.steps.size(); }
  /// Where to record blocks that move between tiers; null while off.
  std::vector<MovedBlock>* moved() { return on_ ? &moved_ : nullptr; }
  /// Calls of add and take since the start.
  uint64_t calls() const { return calls_; }

 private:
  const Clock& clock_;
  bool on_ = false;
  int64_t map_due_us_ = 0;
  int64_t prefixes_due_us_ = 0;
  std::vector<MovedBlock> moved_;
  uint64_t calls_ = 0;
  std::optional<uint64_t> preemptions_before_;
  uint64_t dropped_ = 0;
  std::vector<StepRecord> steps_;
};

}  // namespace hearth::engine
