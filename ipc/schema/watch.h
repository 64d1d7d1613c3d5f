#pragma once
// What a dashboard is told, as plain data, and its bytes. Goes from a worker to the broker, and
// from the broker to whoever listens on events.sock (ipc/client/event_stream.h), which draws it.
//
// Layout: a version byte (2), then the fields of WatchUpdate in the order below. Numbers are
// LEB128, signed ones zigzag; a list is its length and its elements; a text is its length and its
// bytes. Bounds are WatchLimits; a message that breaks one, ends early or has bytes left is refused
// as a whole.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::ipc {

struct WatchLimits {
  static constexpr uint64_t kSteps = 4096;
  static constexpr uint64_t kChunks = 256;  ///< per step
  static constexpr uint64_t kPools = 64;
  static constexpr uint64_t kBlocks = 1 << 24;  ///< per pool
  static constexpr uint64_t kRuns = 1 << 20;    ///< per pool
  static constexpr uint64_t kRequests = 4096;
  static constexpr uint64_t kPrefixes = 4096;
  static constexpr uint64_t kTextBytes = 256;
  static constexpr uint64_t kGapBuckets = 1088;
};

/// Part of a prompt, computed by one step.
struct WatchedChunk {
  uint64_t request = 0;  ///< the broker's number; 0: of somebody else
  int32_t tokens = 0;
  bool operator==(const WatchedChunk&) const = default;
};

/// Gaps between successive messages with tokens of one request, as a histogram: one bucket per
/// microsecond below 64 us, above it 32 to the octave, so that a gap is known to 3 %.
struct WatchedGaps {
  uint32_t bucket = 0;
  uint32_t count = 0;
  bool operator==(const WatchedGaps&) const = default;
};
uint32_t gap_bucket(int64_t gap_us);
/// In the middle of the bucket.
double gap_us(uint32_t bucket);

/// One step of the engine.
struct WatchedStep {
  uint64_t step = 0;
  int64_t end_us = 0;  ///< on the machine's monotonic clock
  int64_t duration_us = 0;
  int32_t decode_rows = 0;
  int32_t draft_rows = 0;
  int32_t accepted = 0;
  std::vector<WatchedChunk> prefills;
  int32_t prefills_unlisted = 0;  ///< tokens
  int32_t running = 0;            ///< sequences after the step
  int32_t waiting = 0;
  int32_t preempted = 0;  ///< since the step before
  bool operator==(const WatchedStep&) const = default;
};

enum class WatchedBlock : uint8_t {
  kFree,
  kUsed,    ///< one sequence refers to it
  kShared,  ///< several do
  kCached,  ///< none does; the prefix index keeps it
  kPinned,  ///< none does; the slow tier keeps it until its pin ends
  kMoving,  ///< its bytes came from the slow tier, or went there, since the last message
};
inline constexpr int kNumWatchedBlocks = 6;

/// `count` blocks from `first` on: alike, but for the position, which grows by one from block to
/// block where the blocks are in use.
struct BlockRun {
  uint32_t first = 0;
  uint32_t count = 0;
  WatchedBlock state = WatchedBlock::kFree;
  uint8_t refs = 0;      ///< 255: that many or more
  uint64_t request = 0;  ///< one of those that refer to it; 0: none, or somebody else's
  int32_t position = 0;  ///< of the first, in blocks, within its sequence
  bool on_disk = false;  ///< the slow tier has it too
  bool operator==(const BlockRun&) const = default;
};

struct PoolUpdate {
  int32_t group = 0;
  int32_t num_blocks = 0;
  bool full = false;  ///< what is in no run is free; else it is as it was
  std::vector<BlockRun> runs;
  bool operator==(const PoolUpdate&) const = default;
};

/// What the worker knows of a request.
struct WatchedProgress {
  int32_t prompt_tokens = 0;
  int32_t prompt_done = 0;
  int32_t cached_tokens = 0;
  int32_t output_tokens = 0;
  int32_t drafted_tokens = 0;
  int32_t accepted_tokens = 0;
  int32_t preemptions = 0;
  int64_t queue_us = 0;
  int64_t ttft_us = -1;  ///< -1: no token yet
  bool operator==(const WatchedProgress&) const = default;
};

struct WatchedRequest : WatchedProgress {
  uint64_t number = 0;
  std::string id;     ///< as the client wrote it
  std::string owner;  ///< "uid:1000"
  std::string model;
  std::string priority;
  std::string state;        ///< queued, waiting, prefill, decode, recovering
  std::string waiting_for;  ///< loading, busy, blocks, slots, fairness, restoring; empty: nothing
  int32_t queue_position = 0;
  int64_t estimate_ms = 0;  ///< until it starts; 0: not known
  int64_t age_ms = 0;
  bool operator==(const WatchedRequest&) const = default;
};

/// Cached blocks that follow one another, with nothing branching off between them.
struct WatchedPrefix {
  /// Of the last block: the hash that the store knows it by (its first and last 8 bytes), and that
  /// of the block in front of the run; 0, 0: none.
  uint64_t name_high = 0, name_low = 0;
  uint64_t parent_high = 0, parent_low = 0;
  int32_t end_block = 0;   ///< blocks from the start of the prompt up to the run's end
  int32_t num_blocks = 0;  ///< of any group, in memory
  int32_t in_use = 0;      ///< of those, by running sequences
  bool pinned = false;
  bool operator==(const WatchedPrefix&) const = default;
};

struct WatchUpdate {
  uint64_t sequence = 0;  ///< one more than the last of this worker; a gap is a lost message
  int64_t now_us = 0;
  uint64_t steps_dropped = 0;
  int32_t block_size = 0;  ///< tokens
  std::vector<WatchedStep> steps;
  std::vector<PoolUpdate> pools;  ///< none: as they were
  std::vector<WatchedRequest> requests;
  bool has_prefixes = false;            ///< else they are as they were
  std::vector<WatchedPrefix> prefixes;  ///< for administrators
  uint64_t resident_bytes = 0;          ///< of the worker's memory; 0: not known
  int64_t power_mw = 0;                 ///< of the machine's processors, recently; 0: not known
  std::vector<WatchedGaps> gaps;        ///< of all requests, since the last message
  bool operator==(const WatchUpdate&) const = default;
};

std::string encode_watch(const WatchUpdate& update);
/// kProtocol says what was met and what was wanted.
Result<WatchUpdate> decode_watch(std::string_view bytes);

}  // namespace hearth::ipc
