#pragma once
// The messages in the engine's two mailboxes: commands in, events out. Plain owned values; the
// engine knows tokens and never text.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/store/store_messages.h"
#include "kernels/base/numbers.h"
#include "kernels/base/result.h"
#include "models/canvas.h"
#include "models/pooling.h"

namespace hearth::models {
class GgufFile;
class Tokenizer;
}  // namespace hearth::models

namespace hearth::engine {

/// Chosen by the worker's front door; unique among the live requests of one engine.
using RequestId = uint64_t;

/// The schema or grammar of a request's text; see engine/grammar/constraint.h.
class Constraint;

enum class Priority { kInteractive, kNormal, kBatch };

/// Sampling of one request. Order of application: logit bias, penalties, temperature, top-k, top-p,
/// min-p, typical, draw. Values were range-checked where they entered (ipc field table).
struct SamplingParams {
  float temperature = 0.8f;         ///< 0: greedy (ties: lowest id)
  int32_t top_k = 40;               ///< 0: off
  float top_p = 0.95f;              ///< 1: off
  float min_p = 0.0f;               ///< 0: off
  float typical_p = 1.0f;           ///< 1: off
  float repetition_penalty = 1.0f;  ///< 1: off; divides positive, multiplies negative logits
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  int32_t penalty_window =
      256;  ///< last tokens (prompt and output) that penalties look at; -1: all
  std::vector<std::pair<int32_t, float>> logit_bias;  ///< token id, added to its logit
  uint64_t seed = 0;          ///< noise is keyed by (seed, sample, position, token)
  int32_t top_logprobs = -1;  ///< -1: none; 0: the chosen token's only; n: also the n best
  bool prompt_logprobs = false;
};

/// A prompt's first tokens, as far as they fill blocks, and how long to keep them.
struct KeptPrefix {
  int32_t num_tokens = 0;
  int64_t seconds = 0;
  bool operator==(const KeptPrefix&) const = default;
};

/// The reasoning at the beginning of an answer, between two marks, and its bound. The marks are
/// found in the text of the tokens, however the model divides it. See ReasoningProgress.
struct ReasoningBound {
  std::string begin, end;
  bool open = false;             ///< the prompt has begun it
  int32_t max_tokens = 0;        ///< between the marks; after as many, `closing` follows
  std::vector<int32_t> closing;  ///< not empty; its text contains `end`
  /// Control tokens that are part of the answer, and their text.
  std::vector<std::pair<int32_t, std::string>> marks;
  const models::Tokenizer* tokenizer = nullptr;  ///< outlives the engine
};

/// The open file of a low-rank adapter (models/decoder/adapter.h). Once posted, only the engine's
/// thread uses it.
class AdapterFile {
 public:
  virtual ~AdapterFile() = default;
  /// With its fingerprint, and finite values. Read if the engine has no adapter of that content.
  virtual const models::GgufFile& file() const = 0;
  /// Called after it was read: an error if its content is not that of the fingerprint.
  virtual Result<void> check() { return {}; }
};
/// An adapter that a request uses.
struct UsedAdapter {
  std::string name;  ///< of the file, without suffix
  std::shared_ptr<AdapterFile> source;
  float scale = 1;  ///< finite
};

/// One request: a prompt and `n` samples grown from it. Samples share the prompt's KV blocks.
struct Request {
  RequestId id = 0;
  std::string owner;  ///< fairness and prefix scope: e.g. "uid:1000"
  /// Prefixes are shared only under equal salts; kSharedSalt and a name: by that name; empty: the
  /// owner.
  std::string cache_salt;
  Priority priority = Priority::kNormal;
  std::vector<int32_t> prompt;  ///< not empty
  int32_t n = 1;
  int32_t max_tokens = 0;  ///< per sample, > 0; prompt + max_tokens <= context
  int32_t min_tokens = 0;  ///< end-of-generation and stop ids are not drawn before
  std::vector<int32_t>
      stop_ids;  ///< end the sample (reason stop), end-of-generation ids among them
  SamplingParams sampling;
  /// Shared by its samples; used only on the engine thread once posted; null: any text.
  std::shared_ptr<Constraint> constraint;
  /// Shared by its samples; null: reasoning is like any text.
  std::shared_ptr<const ReasoningBound> reasoning;
  bool end_reasoning = false;  ///< see EndReasoning
  bool use_prefix_cache = true;
  bool use_prefix_store = true;  ///< the store, too, if the engine has one
  /// Prefixes of the prompt that the store keeps for a number of seconds, whatever else it evicts,
  /// as far as the bound of their owner allows.
  std::vector<KeptPrefix> kept;
  bool speculate = true;  ///< tokens may be drafted; the text stays the same
  /// Tokens that each sample's output may resemble, as a draft. See PredictionProposer.
  std::vector<int32_t> prediction;
  bool use_draft = true;    ///< by a draft model and a draft layer, too, if the engine has one
  int64_t deadline_us = 0;  ///< on the engine's clock; 0: none
  int64_t received_us = 0;  ///< on the engine's clock; start of queue_ms and ttft_ms
  /// Resuming after a lost worker: per sample, the tokens that were already sent. They count
  /// towards max_tokens and are not sent again; the text continues after them.
  std::vector<std::vector<int32_t>> resume;
  /// Not kNone: the request asks for a vector instead of tokens. max_tokens is 0, n is 1, and the
  /// answer is an EmbeddingEvent.
  models::Pooling pooling = models::Pooling::kNone;
  bool normalize = true;  ///< that vector has length 1
  /// A fork: the text under `constraint` and `reasoning` begins this many tokens before the
  /// prompt's end.
  int32_t constraint_prefix = 0;
  /// A fork: the live request and sample whose blocks are shared as far as the tokens are equal, a
  /// partly filled block included; 0: none. It only saves computing.
  RequestId fork_of = 0;
  int32_t fork_sample = 0;
  std::vector<UsedAdapter> adapters{};  ///< what each adds is summed
  /// For a model that denoises, and only for one: max_tokens masked tokens follow the prompt. Where
  /// a block is whole its tokens are sent; the sample ends with the first of stop_ids.
  std::optional<models::CanvasParams> canvas{};
};

struct CancelRequest {
  RequestId id = 0;
};
/// Ends one sample from outside with reason stop (a stop string was seen in its text).
struct FinishSample {
  RequestId id = 0;
  int32_t sample = 0;
};
/// The reasoning of all samples of a request with a ReasoningBound ends with their next tokens, or
/// as soon as it begins. The text is that of a bound of as many tokens as each sample had by then.
struct EndReasoning {
  RequestId id = 0;
};
/// No new requests are admitted (they fail with kUnavailable); run() returns when the live ones
/// end.
struct Drain {};
/// run() returns at once.
struct Stop {};
/// A `SnapshotEvent` is wanted at the end of the next step.
struct WantSnapshot {};
/// At most about so much memory may back the KV pools from now on, at least their floor: what
/// cached prefixes use beyond it is given back at once, and what sequences use as they end. A
/// snapshot follows.
struct KvBound {
  uint64_t bytes = 0;
};

/// Adapters of that name that no request uses are removed; "": all of them. A snapshot follows.
struct DropAdapters {
  std::string name;
};

/// With nothing live, the engine gives back packed weights, adapters and what cached prefixes do
/// not use of the pools, and rests until Wake or a request. AsleepEvent follows. Ignored while a
/// request is live.
struct Sleep {};
/// Weights are packed again: in idle moments, or by each step what it needs.
struct Wake {};

using EngineCommand = std::variant<Request, CancelRequest, FinishSample, EndReasoning, Drain, Stop,
                                   WantSnapshot, StoreReply, KvBound, DropAdapters, Sleep, Wake>;

/// The engine's own check of a request, for values that would make it read outside its arrays or
/// loop. The ranges of the protocol are checked where requests enter. kInvalidArgument names the
/// field.
Result<void> check_request(const Request& request, int32_t vocab_size);
/// The same of a canvas, and that the request has one if and only if the model denoises.
/// kUnsupported names a field that does not fit a canvas.
Result<void> check_canvas(const Request& request, const models::CanvasModel& model);

// ---- Events ---------------------------------------------------------------------------------

enum class FinishReason { kStop, kLength, kCancelled, kDeadline };

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0.0f;  ///< natural log, of the distribution before temperature and truncation
};

/// One generated token. A stop or end-of-generation id makes no event: it ends the sample, which
/// SampleDoneEvent reports.
struct TokenEvent {
  RequestId id = 0;
  int32_t sample = 0;
  int32_t index = 0;  ///< position among the sample's generated tokens
  int32_t token = 0;
  std::optional<float> logprob;            ///< if logprobs were requested
  std::vector<TokenLogprob> top_logprobs;  ///< best first
};

/// The request's first rows enter a step.
struct StartedEvent {
  RequestId id = 0;
  int32_t cached_tokens = 0;  ///< prompt tokens found in the prefix cache
  int64_t queue_us = 0;
};

/// One sample's canvas after a pass.
struct CanvasView {
  int32_t sample = 0;
  int32_t pass = 0;  ///< passes that were computed or had nothing to fill
  int32_t passes = 0;
  std::vector<int32_t> tokens;    ///< all of it; -1: masked
  std::vector<float> confidence;  ///< of each when it was filled, 0 to 1; 0: masked
};

/// At most every 100 ms for a request that waits or prefills, and for one with a canvas until it
/// ends.
struct ProgressEvent {
  RequestId id = 0;
  int32_t prompt_tokens_done = 0;
  int32_t prompt_tokens = 0;
  int32_t queue_position = 0;  ///< 0: running
  std::string waiting_for;     ///< "blocks", "slots", "fairness", "restoring", "" while running
  int64_t estimate_us = 0;  ///< until it runs, from the durations of earlier requests; 0: not known
  std::optional<CanvasView> canvas{};
};

struct PromptLogprobsEvent {
  RequestId id = 0;
  std::vector<float> logprobs;  ///< of prompt tokens 1 .. n-1 given those before
  /// For each of them the best alternatives, if top_logprobs asks for some; best first.
  std::vector<std::vector<TokenLogprob>> top;
};

/// The vector of a request with `pooling`.
struct EmbeddingEvent {
  RequestId id = 0;
  std::vector<float> values;
};

struct SampleDoneEvent {
  RequestId id = 0;
  int32_t sample = 0;
  FinishReason reason = FinishReason::kStop;
  int32_t num_tokens = 0;  ///< generated, resumed ones included
};

/// Why the first uncached token of a prompt, and those after it, had to be computed.
enum class MissReason {
  kNone,        ///< all full blocks before the last token were cached
  kOff,         ///< by the request, or by the configuration
  kNew,         ///< no cached prefix begins like it
  kOther,       ///< cached prefixes continue with other tokens
  kEnded,       ///< cached prefixes end there, or their continuation was evicted
  kSlow,        ///< the rest is stored, and computing it was expected to be faster
  kOverlapped,  ///< it was computed while the rest was loaded from the store
};

/// Counts of draft tokens, of one request or of all. The mean accepted length is accepted_tokens /
/// verifications; each accepted token saved its sequence one decode step.
enum class DraftedBy {
  kLookup,
  kDraftModel,
  kDraftLayer,
  kDraftHeads,
  kEagle3,
  kDFlash,
  kPrediction,  ///< Request::prediction
  kScript,      ///< measurements and tests
};
inline constexpr size_t kDraftedByCount = 8;

/// What one sequence drafted for one step.
struct DraftSize {
  int32_t tokens = 0;
  int32_t places = 0;  ///< of them, those of the longest text that they make
};

struct SpeculationCounts {
  static constexpr size_t kPositions = 16;
  uint64_t verifications = 0;  ///< times that a sequence had draft tokens in a step
  uint64_t drafted_tokens = 0;
  uint64_t accepted_tokens = 0;
  /// By position in a step's draft, from 0; later positions count as the last.
  std::array<uint64_t, kPositions> drafted_at{}, accepted_at{};
  /// By the proposer of the draft, an index of DraftedBy.
  std::array<uint64_t, kDraftedByCount> drafted_by{}, accepted_by{};
  /// Estimate: the time that plain steps would have taken for the tokens of steps with drafts, less
  /// the time that these steps and drafting took. For one request it is below 0 if drafts of other
  /// requests in the same steps cost it more time than its own saved.
  double saved_us = 0;

  /// Adds the draft tokens of one sequence in one step.
  void add(const DraftSize& drafted, int32_t accepted, DraftedBy by);
  double mean_accepted() const {
    return verifications == 0 ? 0 : as_double(accepted_tokens) / as_double(verifications);
  }
};

/// All samples ended. The last event of a request that did not fail.
struct RequestDoneEvent {
  RequestId id = 0;
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;       ///< in memory when it started, or restored since
  int32_t cached_disk_tokens = 0;  ///< of those, restored for it from the store
  MissReason miss = MissReason::kNone;
  int32_t missed_from = 0;    ///< the first prompt token that was computed; `miss` gives the reason
  int32_t output_tokens = 0;  ///< of all samples, resumed ones not counted
  int32_t preemptions = 0;
  SpeculationCounts speculation;
  int64_t queue_us = 0;
  int64_t prefill_us = 0;  ///< first row scheduled to first token
  int64_t ttft_us = 0;     ///< received to first token
  int64_t restore_us = 0;  ///< waited for the store
  int64_t saved_us = 0;    ///< estimate: computing the cached tokens, less the wait; not below 0
  double tpot_us = 0;      ///< (last - first) / (output tokens - 1) of sample 0
  double bandwidth_share = 0;  ///< of the device's measured read bandwidth; 0: not known
};

/// The last event of a request that failed.
struct RequestFailedEvent {
  RequestId id = 0;
  Error error;
};

/// An adapter in the device's memory.
struct AdapterState {
  std::string name;
  uint64_t bytes = 0;
  int32_t num_requests = 0;  ///< live ones that use it
};

/// The engine's state after a step, by value.
struct EngineSnapshot {
  int64_t time_us = 0;
  uint64_t num_steps = 0;
  uint64_t num_steps_ahead = 0;  ///< of them, launched before the previous step's tokens were known
  int32_t num_running = 0;
  int32_t num_waiting = 0;
  int32_t num_preempted = 0;
  std::vector<int32_t> kv_blocks_total;   ///< per layer group
  std::vector<int32_t> kv_blocks_used;    ///< referenced by sequences
  std::vector<int32_t> kv_blocks_cached;  ///< unreferenced, held by the prefix index
  uint64_t kv_bytes = 0;
  uint64_t kv_bytes_used = 0;  ///< of blocks that are used or cached
  // Of all pools, a draft model's included: see KvBound.
  uint64_t kv_reserved_bytes = 0;
  uint64_t kv_backed_bytes = 0;
  uint64_t kv_bound_bytes = 0;
  bool kv_short = false;    ///< a request waits for blocks that a higher bound could provide
  bool kv_stalled = false;  ///< and until then nothing is computed
  uint64_t prompt_tokens_total = 0;
  uint64_t prompt_tokens_cached = 0;
  uint64_t prefill_tokens_total = 0;
  uint64_t decode_tokens_total = 0;
  uint64_t preemptions_total = 0;
  SpeculationCounts speculation;
  double prefill_tokens_per_s = 0;  ///< recent
  double decode_tokens_per_s = 0;
  double step_ms_recent = 0;
  uint64_t prompt_tokens_restored = 0;  ///< of the cached ones, from the store
  StoreStats store;
  std::vector<AdapterState> adapters;
};
struct SnapshotEvent {
  EngineSnapshot snapshot;
};

/// The model's file has changed, so the engine computes no more. Every live request has failed with
/// `error`, and so does each new one.
struct ModelLostEvent {
  Error error;
};

/// The engine sleeps.
struct AsleepEvent {
  uint64_t put_off_bytes = 0;  ///< of weights, no longer in memory
};

/// Drained or stopped: nothing follows.
struct StoppedEvent {};

/// What the prefix cache has gained and lost, if EngineConfig::published asks for it: of the
/// device's memory with the events of the step, of the store some time later.
struct CacheEventsEvent {
  std::vector<CacheEvent> events;  ///< not empty
};

using EngineEvent =
    std::variant<TokenEvent, StartedEvent, ProgressEvent, PromptLogprobsEvent, SampleDoneEvent,
                 RequestDoneEvent, RequestFailedEvent, SnapshotEvent, StoppedEvent, EmbeddingEvent,
                 ModelLostEvent, CacheEventsEvent, AsleepEvent>;

}  // namespace hearth::engine
