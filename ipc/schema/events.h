#pragma once
// The events that answer a generate request, in addition to its deltas.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ipc/schema/deltas.h"
#include "ipc/schema/worker_stats.h"
#include "kernels/base/result.h"

namespace hearth::ipc {

/// Waits: in the broker for a worker, then in the worker's queue. At most every 100 ms.
struct QueuedEvent {
  /// For a worker: "loading" (the model), "busy" (other models fill the memory), "recovering" (its
  /// worker died). In the worker's queue: "slots" (as many run as may), "blocks" (no KV is free),
  /// "fairness" (others' turn), "restoring" (its prefix comes from disk).
  std::string reason;
  int32_t position = 0;  ///< requests of this model that wait ahead of it
  /// Until it starts, 0: not known. For a worker: how long the model took to load last. In the
  /// queue: by how long the last requests took, those ahead of it included.
  int64_t estimate_ms = 0;
  bool operator==(const QueuedEvent&) const = default;
};

/// One sample's canvas, of a model that denoises.
struct CanvasState {
  int32_t sample = 0;
  int32_t pass = 0;                 ///< passes done
  int32_t passes = 0;               ///< all of them
  std::vector<std::string> texts;   ///< of each token of the canvas; "" while it is masked
  std::vector<float> confidence{};  ///< of each when it was filled, 0 to 1; 0 while it is masked
  bool operator==(const CanvasState&) const = default;
};

/// Sent at most every 100 ms while the prompt is computed, or a canvas is filled.
struct ProgressEvent {
  int32_t prompt_done = 0;              ///< prompt tokens computed
  int32_t prompt_total = 0;             ///< prompt tokens
  std::optional<CanvasState> canvas{};  ///< of a model that denoises
  bool operator==(const ProgressEvent&) const = default;
};

/// The member of a message that names the model of its reasoning by the fingerprint of its file.
inline constexpr const char* kReasoningOf = "reasoning_of";

/// Sent when the request's first rows enter a step.
struct StartedEvent {
  std::string model;  ///< the file, not the role
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;
  double queue_ms = 0;
  int32_t max_tokens = 0;              ///< that each sample may have
  std::vector<std::string> relaxed{};  ///< what `relax_schema` left out, in words
  /// Parts of the request that change nothing with this model: `reasoning` (its template has none),
  /// kReasoningOf (reasoning of another model was left out).
  std::vector<std::string> without_effect{};
  std::optional<std::string> remote{};  ///< host of the remote that answers; absent: this machine
  bool operator==(const StartedEvent&) const = default;
};

struct PromptLogprobsEvent {
  std::vector<float> logprobs;       ///< of prompt tokens 1 .. n-1, given the tokens before each
  std::vector<int32_t> ids{};        ///< of all prompt tokens, 0 .. n-1
  std::vector<std::string> texts{};  ///< their texts, as in TokenLogprobs
  /// Most likely alternatives of tokens 1 .. n-1, if `logprobs` asks for any.
  std::vector<std::vector<TopLogprob>> top{};
  bool operator==(const PromptLogprobsEvent&) const = default;
};

struct SampleDoneEvent {
  int32_t sample = 0;
  std::string reason;  ///< stop, tool_calls, length, cancelled, deadline
  int32_t num_tokens = 0;
  std::string stop{};  ///< the stop string that ended it, if any
  bool operator==(const SampleDoneEvent&) const = default;
};

struct Usage {
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;
  int32_t output_tokens = 0;       ///< of all samples
  int32_t drafted_tokens = 0;      ///< drafted tokens that were verified
  int32_t accepted_tokens = 0;     ///< of these, accepted: decode steps saved
  int32_t cached_disk_tokens = 0;  ///< of the cached tokens, restored from disk for this request
  int32_t reasoning_tokens = 0;    ///< of the output tokens, reasoning
  /// Host of the remote that answered, whose counts these are; absent: this machine.
  std::optional<std::string> remote{};
  bool operator==(const Usage&) const = default;
};
struct Timings {
  double queue_ms = 0;
  double prefill_ms = 0;
  double ttft_ms = 0;  ///< request received -> first token sent
  double tpot_ms = 0;  ///< (last token - first token) / (output tokens - 1)
  double total_ms = 0;
  double restore_ms = 0;  ///< spent waiting for the disk before the first step
  double saved_ms = 0;    ///< estimate: the extra time that computing the cached tokens would take
  bool operator==(const Timings&) const = default;
};

/// The last event of a generate request that did not fail.
struct DoneEvent {
  /// Per sample: stop, tool_calls (it stopped and has calls), length, cancelled, deadline.
  std::vector<std::string> finish_reasons;
  std::string model;  ///< the file, not the role
  uint64_t seed = 0;
  Usage usage;
  Timings timings;
  int32_t preemptions = 0;
  std::string cache_miss;      ///< a sentence: why the rest of the prompt was not cached
  int32_t resumed = 0;         ///< worker deaths that the request survived
  double bandwidth_share = 0;  ///< share of the device's measured read bandwidth; 0: not known
  SpeculationStats speculation;
  bool operator==(const DoneEvent&) const = default;
};

/// The last event of a request that failed.
struct ErrorEvent {
  Error error;
  int64_t retry_ms = 0;  ///< kBusy: when to try again
};

}  // namespace hearth::ipc
