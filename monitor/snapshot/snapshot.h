#pragma once
// Everything that the panels draw, made from the messages of events.sock. No window, no socket, no
// clock: messages carry their time. Whatever they hold, memory is bounded and text is safe to show:
// names are truncated, control characters escaped. One thread.

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "ipc/client/event_stream.h"
#include "ipc/schema/replies.h"
#include "ipc/schema/watch.h"
#include "monitor/snapshot/series.h"

namespace hearth::monitor {

inline constexpr size_t kNameChars = 48;  ///< limit for a name from outside
inline constexpr int64_t kHistoryUs = 600'000'000;
inline constexpr int64_t kGapWindowUs = 30'000'000;
inline constexpr int64_t kLostUs = 1'500'000;  ///< silence after which the daemon counts as lost

/// Totals of the steps in a tenth of a second, kept for steps that the ring has dropped.
struct StepColumn {
  int64_t begin_us = 0;
  int32_t steps = 0;
  int64_t busy_us = 0;
  int64_t longest_us = 0;
  int64_t decode_rows = 0;
  int64_t draft_rows = 0;
  int64_t prefill_tokens = 0;
};
inline constexpr int64_t kColumnUs = 100'000;

struct BlockCell {
  uint64_t request = 0;
  int32_t position = 0;
  ipc::WatchedBlock state = ipc::WatchedBlock::kFree;
  uint8_t refs = 0;
  bool on_disk = false;
  bool operator==(const BlockCell&) const = default;
};

struct Pool {
  std::vector<BlockCell> cells;
  std::array<int64_t, ipc::kNumWatchedBlocks> counts{};  ///< per state
  std::array<Series, ipc::kNumWatchedBlocks> history;    ///< blocks per state
  bool known = false;                                    ///< a complete map has arrived
  int64_t time_us = 0;                                   ///< of the last message
  uint64_t revision = 0;                                 ///< increases with every change of a cell
};

/// Gaps of the last kGapWindowUs in the worker's histogram buckets; percentiles are accurate to 3
/// %.
class RecentGaps {
 public:
  void add(int64_t now_us, const std::vector<ipc::WatchedGaps>& gaps);
  uint64_t count() const { return count_; }
  double ms(double share) const;  ///< the gap below which a `share` lies; 0 if there are none

 private:
  struct Batch {
    int64_t time_us = 0;
    std::vector<ipc::WatchedGaps> gaps;
  };
  void count_in(const Batch& batch, bool in);
  std::deque<Batch> batches_;  ///< oldest first
  std::vector<uint64_t> buckets_;
  uint64_t count_ = 0;
};

/// A model whose worker sends reports.
struct ModelView {
  std::string name;
  ipc::WorkerStats stats;
  int64_t stats_us = 0;
  std::deque<ipc::WatchedStep> steps;  ///< oldest first
  std::deque<StepColumn> columns;
  std::vector<Pool> pools;
  int32_t block_size = 0;
  uint64_t last_sequence = 0;
  uint64_t messages_lost = 0;
  uint64_t steps_lost = 0;
  Series prefill_rate, decode_rate;          ///< tokens/s
  Series running, waiting, preempted;        ///< sequences
  Series step_ms, hit_rate, acceptance;      ///< ms, share, share
  Series width;                              ///< drafted tokens per verification
  RecentGaps gaps;                           ///< between messages with tokens of the same request
  Series gap_ms_p50, gap_ms_p99;             ///< ms, over a tenth of a second each
  std::vector<ipc::WatchedPrefix> prefixes;  ///< in memory; for administrators
  int64_t prefixes_us = 0;                   ///< when they were reported; 0: never
  uint64_t resident_bytes = 0;               ///< of the worker; 0: unknown
  int64_t power_mw = 0;                      ///< 0: unknown
  Series memory, power;                      ///< GiB, W
  Series gpu_power;                          ///< W
};

/// A state of a request, with its start and end.
struct LifeSegment {
  std::string state;
  int64_t begin_us = 0;
  int64_t end_us = 0;
};

struct RequestView {
  ipc::WatchedRequest row;  ///< the latest row; its texts are safe to show
  std::string raw_id;       ///< for cancelling it; empty if it was truncated
  int64_t received_us = 0;
  int64_t seen_us = 0;
  bool ended = false;
  double tokens_per_s = 0;  ///< since the first token
  std::vector<LifeSegment> life;
};

struct LogLine {
  int64_t time_us = 0;
  int level = 0;  ///< 0 info, 1 warning, 2 error
  std::string text;
};

/// An event that may explain a change in a plot: a swap, a load, a worker's death.
struct Mark {
  int64_t time_us = 0;
  std::string text;
};

class Snapshot {
 public:
  static constexpr size_t kMaxModels = 32;
  static constexpr size_t kMaxSteps = 40'000;
  static constexpr size_t kMaxChunks = 64;  ///< kept per step
  static constexpr size_t kMaxEnded = 256;
  static constexpr size_t kMaxLife = 64;
  static constexpr size_t kMaxLog = 2000;
  static constexpr size_t kMaxMarks = 64;
  static constexpr size_t kMaxCells = 4
                                      << 20;  ///< blocks of all pools; further pools are not shown

  void apply(const ipc::StreamMessage& message);
  /// Advances the time when no messages arrive: the daemon may be lost.
  void set_now(int64_t now_us);

  int64_t now_us() const { return now_us_; }
  bool connected() const { return connected_; }
  int64_t last_message_us() const { return last_us_; }  ///< 0: none yet
  /// Increases with each change that needs a redraw.
  uint64_t revision() const { return revision_; }

  const ipc::StatsReply& stats() const { return stats_; }
  const ipc::ModelsReply& models() const { return models_; }
  int64_t models_us() const { return models_us_; }
  const std::map<std::string, ModelView>& model_views() const { return views_; }
  const std::map<uint64_t, RequestView>& requests() const { return requests_; }
  const std::deque<LogLine>& log() const { return log_; }
  const std::deque<Mark>& marks() const { return marks_; }  ///< oldest first
  const ipc::WatchedRequest* find(uint64_t number) const;

  double ttft_ms_p50() const { return ttft_p50_; }
  double ttft_ms_p99() const { return ttft_p99_; }
  size_t num_ttfts() const { return ttfts_ms_.size(); }
  uint64_t messages_refused() const { return refused_; }

  /// Adds a line to the log; `text` must be safe to show.
  void note(int level, std::string text) { add_line(level, std::move(text)); }
  /// Something drawn has changed that did not come from a message.
  void touch() { ++revision_; }

 private:
  void on_stats(const ipc::StatsReply& reply);
  void on_models(const ipc::ModelsReply& reply);
  void on_watch(const std::string& model, const ipc::WatchUpdate& update);
  void on_requests(const ipc::WatchUpdate& update);
  void add_gaps(ModelView& view, const ipc::WatchUpdate& update);
  void add_step(ModelView& view, const ipc::WatchedStep& step);
  void add_pool(ModelView& view, const ipc::PoolUpdate& update);
  void end_request(RequestView& request);
  void end_all();
  void add_line(int level, std::string text);
  void mark(std::string text);
  void compare_roles(const ipc::ModelsReply& before);
  ModelView* view_of(const std::string& model);

  int64_t now_us_ = 0;
  int64_t last_us_ = 0;
  bool connected_ = false;
  uint64_t revision_ = 1;
  uint64_t refused_ = 0;
  ipc::StatsReply stats_;
  ipc::ModelsReply models_;
  int64_t models_us_ = 0;
  std::map<std::string, ModelView> views_;
  std::map<uint64_t, RequestView> requests_;
  std::deque<uint64_t> ended_;  ///< oldest first
  std::deque<double> ttfts_ms_;
  double ttft_p50_ = 0, ttft_p99_ = 0;
  std::deque<LogLine> log_;
  std::deque<Mark> marks_;
};

/// The scheduler's decision for a step, in words: "decode 4 sequences, 24 tokens drafted, 18
/// accepted; prefill 512 tokens of 2 prompts; 3 still wait".
std::string step_in_words(const ipc::WatchedStep& step);

}  // namespace hearth::monitor
