#pragma once
// The data that dashboards draw, as plain structs, and its encoding. A worker sends it to the
// broker, which publishes it on events.sock (ipc/client/event_stream.h).
//
// Layout: a version byte (3), then the fields of WatchUpdate in the order below. Numbers are
// LEB128, signed ones zigzag; a list is its length and its elements; a text is its length and its
// bytes. Bounds are in WatchLimits; a message that exceeds one, ends early or has bytes left over
// is refused as a whole.

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

/// The part of a prompt that one step computed.
struct WatchedChunk {
  uint64_t request = 0;  ///< the broker's number; 0: another owner's
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
/// The middle of the bucket, microseconds.
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
  int32_t preempted = 0;  ///< since the previous step
  bool operator==(const WatchedStep&) const = default;
};

enum class WatchedBlock : uint8_t {
  kFree,
  kUsed,    ///< referenced by one sequence
  kShared,  ///< referenced by several sequences
  kCached,  ///< unreferenced; kept by the prefix index
  kPinned,  ///< unreferenced; pinned in the slow tier
  kMoving,  ///< copied from or to the slow tier since the last message
};
inline constexpr int kNumWatchedBlocks = 6;

/// `count` blocks from `first` on that are alike. The position of blocks in use grows by one from
/// block to block.
struct BlockRun {
  uint32_t first = 0;
  uint32_t count = 0;
  WatchedBlock state = WatchedBlock::kFree;
  uint8_t refs = 0;      ///< 255: that many or more
  uint64_t request = 0;  ///< one of the requests that reference it; 0: none, or another owner's
  int32_t position = 0;  ///< of the first block within its sequence, in blocks
  bool on_disk = false;  ///< the slow tier holds it too
  bool operator==(const BlockRun&) const = default;
};

struct PoolUpdate {
  int32_t group = 0;
  int32_t num_blocks = 0;
  bool full = false;  ///< blocks in no run are free; otherwise they are unchanged
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
  /// Of the first sample's canvas, a character per token: '.' masked, '0' to '9' how sure it was
  /// when it was filled. No canvas, or a part of one, from token `canvas_first` on.
  std::string canvas{};
  int32_t canvas_first = 0;
  int32_t pass = 0, passes = 0;
  bool operator==(const WatchedProgress&) const = default;
};

struct WatchedRequest : WatchedProgress {
  uint64_t number = 0;
  std::string id;     ///< as the client wrote it
  std::string owner;  ///< "uid:1000"
  std::string model;
  std::string priority;
  std::string state;  ///< queued, waiting, prefill, decode, recovering, remote
  /// loading, busy, blocks, slots, fairness, restoring, or the host of the remote; empty: nothing
  std::string waiting_for;
  int32_t queue_position = 0;
  int64_t estimate_ms = 0;  ///< until it starts; 0: not known
  int64_t age_ms = 0;
  bool operator==(const WatchedRequest&) const = default;
};

/// A run of cached blocks without a branch between them.
struct WatchedPrefix {
  /// The store's hash of the last block (its first and last 8 bytes), and that of the block before
  /// the run; 0, 0: none.
  uint64_t name_high = 0, name_low = 0;
  uint64_t parent_high = 0, parent_low = 0;
  int32_t end_block = 0;   ///< blocks from the start of the prompt to the run's end
  int32_t num_blocks = 0;  ///< in memory, of all groups
  int32_t in_use = 0;      ///< of these, used by running sequences
  bool pinned = false;
  bool operator==(const WatchedPrefix&) const = default;
};

struct WatchUpdate {
  uint64_t sequence = 0;  ///< counts this worker's messages; a gap means that one was lost
  int64_t now_us = 0;
  uint64_t steps_dropped = 0;
  int32_t block_size = 0;  ///< tokens
  std::vector<WatchedStep> steps;
  std::vector<PoolUpdate> pools;  ///< empty: unchanged
  std::vector<WatchedRequest> requests;
  bool has_prefixes = false;            ///< false: the prefixes are unchanged
  std::vector<WatchedPrefix> prefixes;  ///< for administrators
  uint64_t resident_bytes = 0;          ///< of the worker process; 0: not known
  int64_t power_mw = 0;                 ///< recent power of the machine's CPUs; 0: not known
  std::vector<WatchedGaps> gaps;        ///< of all requests, since the last message
  bool operator==(const WatchUpdate&) const = default;
};

std::string encode_watch(const WatchUpdate& update);
/// kProtocol: the bytes are not such a message.
Result<WatchUpdate> decode_watch(std::string_view bytes);

}  // namespace hearth::ipc
