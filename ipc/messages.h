#pragma once
// The protocol HEARTH/1 as plain data. Byte layout of its frames (ZeroMQ multipart, one per line):
//
//   client -> daemon                    daemon -> client
//   "HEARTH/1"                          "HEARTH/1"
//   request id, 1 to 64 bytes           request id, as the client wrote it
//   JSON request (UTF-8)                "event" | "delta"
//                                       event: JSON          delta: DeltaHeader + UTF-8 text,
//                                                                   or parts (see DeltaPart)
//                                                            delta: token ids, i32 little endian
//                                                            delta: JSON array of logprobs (only
//                                                                   where they were asked for)
//
// A request id is 1 to 64 visible ASCII characters; it belongs to its owner (the uid the kernel
// names for the connection) and is unique among that owner's live requests. A request's answer is
// either one reply event ("reply", or "error"; load, unload and swap say loading* before it) or,
// for `generate`, the events queued* progress* started prompt_logprobs? delta* sample_done* and
// last `done` or `error`.
//
//   broker -> worker                    worker -> broker
//   u64 little endian, the broker's     the same u64; 0: about the worker itself
//   number for the request
//   "request" | "control"               "event" | "delta"
//   JSON                                as above
//
// The broker puts the client's frames in front of a worker's answer and sends it on; it keeps the
// ids frame of each delta (the token log, for resuming) and parses neither text nor JSON of a
// token.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::ipc {

inline constexpr std::string_view kProtocol = "HEARTH/1";
inline constexpr size_t kMaxRequestIdBytes = 64;
inline constexpr size_t kMaxRequestBytes = 32u << 20;  ///< one JSON request

// ---- Requests -------------------------------------------------------------------------------

enum class Verb {
  kPing,  ///< is anybody there: answers from the broker at once, with the instance id
  kGenerate,
  kTokenize,
  kCancel,
  kModels,
  kPs,  ///< live requests of the caller (of everybody for an admin)
  kStats,
  kHealth,
  kLoad,    ///< a model into memory; answered once it is there
  kUnload,  ///< out of memory, once its requests have ended
  kSwap,    ///< a role to another model, once that is in memory
  kCache,   ///< looks after the prefixes on disk, of the caller (of everybody for an admin)
  kAttach,  ///< the answers of a live request of the same owner, or of one that ended just now
  kFork,    ///< continues from what such a request has written so far; answered like generate
  kEmbed,   ///< texts as vectors
};
inline constexpr int kNumVerbs = 15;

/// A JSON value that is passed on as it came; who reads it knows what it may hold.
struct JsonText {
  std::string text;  ///< "": an empty list or object
  bool empty() const { return text.empty(); }
  bool operator==(const JsonText&) const = default;
};

/// A generate request, ranges checked. Defaults are those of the field table.
struct GenerateRequest {
  std::string model = "default";     ///< a role or a model's name
  std::string prompt;                ///< text; or
  std::vector<int32_t> prompt_ids;   ///< token ids, exactly as they shall be computed; or
  JsonText messages;                 ///< a list of objects, for the model's chat template
  JsonText tools;                    ///< a list of objects: what the template is told of functions
  std::string tool_choice = "auto";  ///< auto, none, required, or a function's name
  bool parallel_tool_calls = true;   ///< false: a sample ends with its first call
  JsonText template_kwargs;          ///< an object: more variables for the template
  bool raw = false;                  ///< no BOS put in front
  bool parse_special = false;        ///< control tokens in the prompt's text become tokens
  int32_t n = 1;
  int32_t max_tokens = 256;  ///< 0: as many as the context has room for
  int32_t min_tokens = 0;
  float temperature = 0.8f;
  int32_t top_k = 40;
  float top_p = 0.95f;
  float min_p = 0.0f;
  float typical_p = 1.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  int32_t penalty_window = 256;
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::optional<uint64_t> seed;   ///< absent: the daemon chooses; `done` reports it
  std::vector<std::string> stop;  ///< stop strings; not part of the text
  std::vector<int32_t> stop_ids;
  bool ignore_eos = false;
  int32_t logprobs = -1;  ///< -1: none; 0..20: that many alternatives
  bool prompt_logprobs = false;
  std::string priority = "normal";  ///< interactive, normal, batch
  int64_t deadline_ms = 0;          ///< from receipt; 0: none
  bool speculate = true;            ///< guess tokens ahead: the same text, sooner
  std::string draft = "auto";       ///< who guesses beside lookup: auto, none, or a model's name
  std::string cache = "disk";       ///< where the prefix is looked up and kept: off, memory, disk
  int64_t cache_keep_s = 0;         ///< its prompt stays on disk so long, whatever is evicted
  int32_t cache_keep_tokens = 0;    ///< the first so many tokens of it do; 0: all
  int32_t cache_keep_bytes = 0;     ///< the same in bytes of the prompt's text; 0: all
  std::string cache_share;          ///< shared with whoever names the same; "": with nobody
  std::string json_schema;          ///< JSON text of a schema that the text follows; empty: none
  std::string grammar;              ///< GBNF that the text follows; empty: none
  bool detach = false;              ///< goes on when its client leaves; `attach` comes back to it
  bool operator==(const GenerateRequest&) const = default;
};

struct TokenizeRequest {
  std::string model = "default";
  std::string text;  ///< this, or messages
  bool raw = false;
  bool parse_special = false;
  JsonText messages{};  ///< a conversation: the tokens of what the model's template makes of it
  JsonText tools{};     ///< with `messages`, as of generate
  JsonText template_kwargs{};
  bool operator==(const TokenizeRequest&) const = default;
};

/// Ends a live request of the same owner; its own answer is then `done` with reason cancelled.
struct CancelRequest {
  std::string id;  ///< of the request to end
  bool operator==(const CancelRequest&) const = default;
};

struct PingRequest {
  bool operator==(const PingRequest&) const = default;
};
struct ModelsRequest {
  bool operator==(const ModelsRequest&) const = default;
};
struct PsRequest {
  bool operator==(const PsRequest&) const = default;
};
struct StatsRequest {
  bool operator==(const StatsRequest&) const = default;
};
struct HealthRequest {
  bool operator==(const HealthRequest&) const = default;
};

/// For administrators, as the two below. Loading goes on when the one who asked goes away.
struct LoadRequest {
  std::string model = "default";
  int64_t keep_alive_ms = -1;  ///< idle, it leaves after so long; 0: never; -1: as configured
  std::string draft =
      "auto";  ///< who guesses for it: auto (as it is, or as configured), none, name
  bool operator==(const LoadRequest&) const = default;
};
struct UnloadRequest {
  std::string model = "default";
  bool operator==(const UnloadRequest&) const = default;
};
/// Requests that name the role are the new model's from one moment on; those under way end where
/// they are. Where the model cannot be loaded nothing changes.
struct SwapRequest {
  std::string role = "default";
  std::string model;
  bool operator==(const SwapRequest&) const = default;
};

/// What `hearth cache` does on files, for those who cannot reach the daemon's.
struct CacheRequest {
  std::string op = "ls";           ///< ls, stats, rm, pin, unpin, verify, compact, why
  std::string model;               ///< only this one's prefixes; "": of all
  std::vector<std::string> names;  ///< as ls shows them; why: one request id
  int64_t ttl_s = 3600;            ///< pin: so long
  bool all = false;                ///< rm: without names; admins: of every owner
  bool wipe = false;               ///< rm: leave no byte in the files
  bool show_text = false;          ///< ls: first words
  bool as_json = false;            ///< ls, stats
  bool operator==(const CacheRequest&) const = default;
};

/// The answers of a request from a token on: what was sent before, then what comes, as of
/// `generate`, behind an AttachedEvent.
struct AttachRequest {
  std::string id;    ///< the request
  int32_t from = 0;  ///< of each sample, from the delta that holds this token on
  bool operator==(const AttachRequest&) const = default;
};

/// Samples that go on from the first tokens of a request's sample as if these had been the end of
/// its prompt; everything else is as that request said it.
struct ForkRequest {
  std::string id;                ///< the request
  int32_t sample = 0;            ///< of it
  int32_t from = -1;             ///< behind so many tokens of it; -1: behind those it has
  int32_t n = 1;                 ///< samples
  int32_t max_tokens = 0;        ///< of each; 0: what the request had left there
  std::optional<uint64_t> seed;  ///< absent: the daemon chooses; `done` reports it
  bool detach = false;
  bool operator==(const ForkRequest&) const = default;
};

struct EmbedRequest {
  std::string model = "default";
  std::vector<std::string> texts;         ///< one vector for each; or
  std::vector<std::vector<int32_t>> ids;  ///< token ids, exactly as they shall be computed
  std::string pooling = "auto";           ///< auto (as the model's file says), mean, cls, last
  bool normalize = true;                  ///< each vector has length 1
  bool operator==(const EmbedRequest&) const = default;
};

/// What a client sends. The alternatives are in the order of `Verb`.
using ClientRequest =
    std::variant<PingRequest, GenerateRequest, TokenizeRequest, CancelRequest, ModelsRequest,
                 PsRequest, StatsRequest, HealthRequest, LoadRequest, UnloadRequest, SwapRequest,
                 CacheRequest, AttachRequest, ForkRequest, EmbedRequest>;
inline Verb verb_of(const ClientRequest& request) { return static_cast<Verb>(request.index()); }

/// Wire name, e.g. "generate".
std::string_view name(Verb verb);
std::optional<Verb> verb_from_name(std::string_view name);

// ---- Deltas: new text and tokens of one sample ------------------------------------------------

/// First bytes of a delta's payload frame, little endian, 16 bytes; text or parts follow.
struct DeltaHeader {
  uint32_t sample = 0;
  uint32_t first_index = 0;  ///< of the delta's first token among the sample's generated tokens
  uint32_t num_tokens = 0;   ///< equals the ids frame; a gap in indices is a lost delta
  uint32_t num_parts = 0;    ///< 0: the rest of the frame is text
  bool operator==(const DeltaHeader&) const = default;
};
inline constexpr size_t kDeltaHeaderBytes = 16;

/// What a part of a conversation's answer is, in the order of its number on the wire.
enum class DeltaChannel : uint32_t {
  kText,
  kReasoning,  ///< what the model's template marks as such
  kCall,       ///< a call begins: {"index":0,"id":"a1B2c3D4e","name":"f"}
  kArguments,  ///< of the call that began last: more of their JSON text
};
inline constexpr uint32_t kNumDeltaChannels = 4;
/// "text", "reasoning", "call", "arguments"
std::string_view name(DeltaChannel channel);

/// On the wire: channel and number of bytes, little endian, 4 bytes each; then the text.
struct DeltaPart {
  DeltaChannel channel = DeltaChannel::kText;
  std::string text{};
  bool operator==(const DeltaPart&) const = default;
};
inline constexpr size_t kPartHeaderBytes = 8;

/// The text of a kCall part, as JSON.
struct ToolCall {
  int32_t index = 0;  ///< among the calls of the sample
  std::string id;     ///< 9 letters and digits; a conversation has it once
  std::string name;
  bool operator==(const ToolCall&) const = default;
};

struct TopLogprob {
  int32_t token = 0;
  float logprob = 0;   ///< natural log, of the distribution before temperature and truncation
  std::string text{};  ///< as of TokenLogprobs
  bool operator==(const TopLogprob&) const = default;
};
/// Of one generated token.
struct TokenLogprobs {
  float logprob = 0;
  std::vector<TopLogprob> top;  ///< best first
  /// What the token stands for; bytes that are no UTF-8 by themselves as "bytes:\\xe2\\x82".
  std::string text{};
  bool operator==(const TokenLogprobs&) const = default;
};

struct Delta {
  DeltaHeader header;
  /// Valid UTF-8; lags behind the ids while a character is incomplete. Of a delta with parts: those
  /// that are text.
  std::string text;
  std::vector<int32_t> ids;
  std::vector<TokenLogprobs> logprobs;  ///< one per token, or empty where none were asked for
  std::vector<DeltaPart> parts{};       ///< empty: all is text
};

// ---- Events of a generate request -------------------------------------------------------------

/// Waits in the broker, for a worker.
struct QueuedEvent {
  std::string reason;       ///< "loading" (the model), "busy", "recovering" (its worker died)
  int32_t position = 0;     ///< requests of this model ahead of it
  int64_t estimate_ms = 0;  ///< until it starts; 0: not known
  bool operator==(const QueuedEvent&) const = default;
};

/// At most every 100 ms for a request that waits in the engine or prefills.
struct ProgressEvent {
  int32_t prompt_done = 0;   ///< prompt tokens computed
  int32_t prompt_total = 0;  ///< prompt tokens
  int32_t position = 0;      ///< in the engine's queue; 0: running
  std::string waiting_for;   ///< "blocks", "slots", "fairness", "restoring"; "" while running
  bool operator==(const ProgressEvent&) const = default;
};

/// The first rows enter a step.
struct StartedEvent {
  std::string model;  ///< the file, not the role
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;
  double queue_ms = 0;
  bool operator==(const StartedEvent&) const = default;
};

struct PromptLogprobsEvent {
  std::vector<float> logprobs;       ///< of prompt tokens 1 .. n-1 given those before
  std::vector<int32_t> ids{};        ///< of all prompt tokens, 0 .. n-1
  std::vector<std::string> texts{};  ///< what they stand for, as of TokenLogprobs
  /// Likeliest alternatives of tokens 1 .. n-1, where `logprobs` asks for some.
  std::vector<std::vector<TopLogprob>> top{};
  bool operator==(const PromptLogprobsEvent&) const = default;
};

struct SampleDoneEvent {
  int32_t sample = 0;
  std::string reason;  ///< stop, tool_calls, length, cancelled, deadline
  int32_t num_tokens = 0;
  std::string stop{};  ///< the stop string that ended it, if one did
  bool operator==(const SampleDoneEvent&) const = default;
};

struct Usage {
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;
  int32_t output_tokens = 0;       ///< of all samples
  int32_t drafted_tokens = 0;      ///< guesses that were verified
  int32_t accepted_tokens = 0;     ///< of them, those that were right: decode steps saved
  int32_t cached_disk_tokens = 0;  ///< of the cached ones, restored from disk for this request
  int32_t reasoning_tokens = 0;    ///< of the output tokens, those of reasoning
  bool operator==(const Usage&) const = default;
};
struct Timings {
  double queue_ms = 0;
  double prefill_ms = 0;
  double ttft_ms = 0;  ///< request received -> first token sent
  double tpot_ms = 0;  ///< (last token - first token) / (output tokens - 1)
  double total_ms = 0;
  double restore_ms = 0;  ///< waited for the disk, before the first step
  double saved_ms = 0;    ///< estimate: computing the cached tokens would have taken so much longer
  bool operator==(const Timings&) const = default;
};

/// Guesses verified: of a request, or of a worker's engine so far; see engine::SpeculationCounts.
struct SpeculationStats {
  uint64_t verifications = 0;  ///< times that a sequence had guesses in a step
  uint64_t drafted_tokens = 0;
  uint64_t accepted_tokens = 0;
  std::vector<uint64_t> drafted_at;   ///< by place among the guesses of a step, to the last used
  std::vector<uint64_t> accepted_at;  ///< of them
  double mean_accepted = 0;           ///< accepted_tokens / verifications
  double saved_ms = 0;                ///< estimate: plain decoding would have taken so much longer
  bool operator==(const SpeculationStats&) const = default;
};

/// The last event of a generate request that did not fail.
struct DoneEvent {
  /// Per sample: stop, tool_calls (it stopped, and has calls), length, cancelled, deadline.
  std::vector<std::string> finish_reasons;
  std::string model;  ///< the file, not the role
  uint64_t seed = 0;
  Usage usage;
  Timings timings;
  int32_t preemptions = 0;
  std::string cache_miss;      ///< why the prompt was computed from where it was, in words
  int32_t resumed = 0;         ///< worker deaths that the request survived
  double bandwidth_share = 0;  ///< of the device's measured read bandwidth; 0: not known
  SpeculationStats speculation;
  bool operator==(const DoneEvent&) const = default;
};

/// The last event of a request that failed.
struct ErrorEvent {
  Error error;
  int64_t retry_ms = 0;  ///< kBusy: when to try again
};

// ---- Replies ----------------------------------------------------------------------------------

struct PongReply {
  std::string instance;  ///< random, new at each start: another value is another daemon
  int32_t pid = 0;
  std::string version;
  int64_t uptime_ms = 0;
  bool draining = false;
  bool operator==(const PongReply&) const = default;
};

struct TokenizeReply {
  std::string model;
  std::vector<int32_t> ids;
  std::vector<std::string> entries;  ///< vocabulary entries as written ("▁the"), one per id
  bool operator==(const TokenizeReply&) const = default;
};

struct CancelReply {
  std::string id;
  bool operator==(const CancelReply&) const = default;
};

struct ModelEntry {
  std::string name;                ///< file name without suffix
  std::vector<std::string> roles;  ///< that point at it
  /// found (a file), loading, resident, draining, parked (was resident; the next request brings it
  /// back), failed
  std::string state;
  uint64_t file_bytes = 0;
  double load_share = 0;  ///< loading: 0 to 1
  std::string problem;    ///< failed: the sentence
  // Known once it has been resident:
  std::string architecture;
  std::string file_type;  ///< dominant weight type, e.g. "Q8_0"
  uint64_t num_parameters = 0;
  int32_t context_length = 0;
  std::string device;  ///< "cpu avx512-vnni", ...; empty unless resident
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;
  int32_t worker_pid = 0;
  /// Of memory: what it takes, or would take as far as that is known; 0: not known yet.
  uint64_t memory_bytes = 0;
  int64_t keep_alive_ms = 0;  ///< idle, it leaves after so long; 0: never
  int64_t idle_ms = 0;        ///< resident: since its last request ended
  std::string draft;          ///< the model that guesses for it while it is resident; "": none
  bool operator==(const ModelEntry&) const = default;
};
struct ModelsReply {
  std::vector<ModelEntry> models;
  std::vector<std::string> folders;  ///< searched, in order
  bool operator==(const ModelsReply&) const = default;
};

struct PsEntry {
  std::string id;
  std::string owner;  ///< "uid:1000"
  std::string model;
  std::string state;  ///< queued, waiting, prefill, decode, recovering
  std::string priority;
  int32_t prompt_tokens = 0;
  int32_t output_tokens = 0;
  int64_t age_ms = 0;
  bool operator==(const PsEntry&) const = default;
};
struct PsReply {
  std::vector<PsEntry> requests;
  std::vector<ModelEntry> models;  ///< resident or loading
  bool operator==(const PsReply&) const = default;
};

/// A worker's store of prefixes on disk; see engine::StoreStats.
struct StoreSnapshot {
  std::string state = "off";  ///< off, writing, reading (another process writes), degraded
  uint64_t entries = 0;       ///< chunks of about a MiB
  uint64_t bytes = 0;
  uint64_t budget_bytes = 0;
  uint64_t chunks_loaded = 0;
  uint64_t chunks_saved = 0;
  uint64_t chunks_evicted = 0;
  uint64_t chunks_dropped = 0;  ///< not written: queue full, disk full, an error
  uint64_t chunks_refused = 0;  ///< damaged, or not ours
  uint64_t pins_refused = 0;    ///< their owner has pinned as much as may be
  std::string last_error;
  bool operator==(const StoreSnapshot&) const = default;
};

/// A worker's engine after a step; see engine::EngineSnapshot.
struct WorkerSnapshot {
  uint64_t num_steps = 0;
  int32_t num_running = 0;
  int32_t num_waiting = 0;
  int32_t num_preempted = 0;
  std::vector<int32_t> kv_blocks_total;   ///< per layer group
  std::vector<int32_t> kv_blocks_used;    ///< referenced by sequences
  std::vector<int32_t> kv_blocks_cached;  ///< unreferenced, held by the prefix index
  uint64_t kv_bytes = 0;
  uint64_t prompt_tokens_total = 0;
  uint64_t prompt_tokens_cached = 0;
  uint64_t prefill_tokens_total = 0;
  uint64_t decode_tokens_total = 0;
  uint64_t preemptions_total = 0;
  SpeculationStats speculation;
  double prefill_tokens_per_s = 0;  ///< recent
  double decode_tokens_per_s = 0;   ///< recent
  double step_ms_recent = 0;
  uint64_t prompt_tokens_restored = 0;  ///< of the cached ones, from disk
  StoreSnapshot store;
  bool operator==(const WorkerSnapshot&) const = default;
};

struct WorkerStats {
  std::string model;
  std::string device;
  std::string state;  ///< starting, ready, draining, lost
  int32_t pid = 0;
  int32_t restarts = 0;
  int64_t heartbeat_age_ms = 0;
  WorkerSnapshot snapshot;
  bool operator==(const WorkerStats&) const = default;
};
struct StatsReply {
  std::string instance;
  std::string version;
  int64_t uptime_ms = 0;
  int32_t requests_live = 0;
  uint64_t requests_total = 0;
  uint64_t requests_done = 0;
  uint64_t requests_failed = 0;
  uint64_t requests_cancelled = 0;
  uint64_t output_tokens_total = 0;
  std::vector<WorkerStats> workers;
  bool operator==(const StatsReply&) const = default;
};

struct HealthReply {
  std::string status;                 ///< ok, degraded, draining
  std::vector<std::string> problems;  ///< sentences; empty when ok
  bool operator==(const HealthReply&) const = default;
};

/// Before the reply to load, unload and swap: at most every 100 ms, and only what is new.
struct LoadingEvent {
  std::string model;
  /// "room" (others leave first), "starting", "reading", "warming_up", "recovering" (it died and is
  /// tried again), "draining" (unload: its requests end)
  std::string stage;
  uint64_t bytes_done = 0;
  uint64_t bytes_total = 0;
  int64_t estimate_ms = 0;  ///< until it is ready; 0: not known
  bool operator==(const LoadingEvent&) const = default;
};

struct LoadReply {
  std::string model;    ///< the file, not the role
  int64_t load_ms = 0;  ///< from the verb to this reply; 0: it was there
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;
  std::string draft;  ///< the model that guesses for it; "": none
  bool operator==(const LoadReply&) const = default;
};
struct UnloadReply {
  std::string model;
  bool was_resident = false;
  bool operator==(const UnloadReply&) const = default;
};
struct SwapReply {
  std::string role;
  std::string model;
  std::string previous;  ///< that the role pointed at before
  int64_t load_ms = 0;   ///< from the verb to the moment the role pointed elsewhere
  bool operator==(const SwapReply&) const = default;
};

struct CacheReply {
  bool ok = true;
  std::string text;  ///< as `hearth cache` prints it
  bool operator==(const CacheReply&) const = default;
};

/// The first answer to `attach`; what follows is what `generate` is answered by.
struct AttachedEvent {
  std::string id;     ///< the request
  std::string model;  ///< the file, or what it will be
  bool live = false;  ///< false: it has ended; `done` or `error` is kept with the rest
  std::vector<int32_t>
      from;  ///< per sample: its first token that will be sent again, or that comes
  bool operator==(const AttachedEvent&) const = default;
};

struct EmbedReply {
  std::string model;
  int32_t dimensions = 0;
  std::vector<int32_t> prompt_tokens;  ///< of each text
  /// Of each text: f32, little endian, in base64 (RFC 4648 section 4).
  std::vector<std::string> vectors;
  bool operator==(const EmbedReply&) const = default;
};

/// Every JSON event that a client can be sent.
using Event =
    std::variant<QueuedEvent, ProgressEvent, StartedEvent, PromptLogprobsEvent, SampleDoneEvent,
                 DoneEvent, ErrorEvent, PongReply, TokenizeReply, CancelReply, ModelsReply, PsReply,
                 StatsReply, HealthReply, LoadingEvent, LoadReply, UnloadReply, SwapReply,
                 CacheReply, AttachedEvent, EmbedReply>;

// ---- Between broker and worker ----------------------------------------------------------------

/// What the broker adds to a request before a worker sees it.
struct WorkerRequest {
  uint64_t id = 0;                           ///< the frame in front; not in the JSON
  Verb verb = Verb::kGenerate;               ///< kGenerate, kTokenize or kEmbed
  std::string owner;                         ///< "uid:1000"
  int64_t received_ms_ago = 0;               ///< spent in the broker already
  GenerateRequest generate;                  ///< verb kGenerate; its seed is set
  TokenizeRequest tokenize;                  ///< verb kTokenize
  EmbedRequest embed;                        ///< verb kEmbed
  std::vector<std::vector<int32_t>> resume;  ///< per sample, tokens already sent
  /// A fork: tokens behind the prompt, and the live request (0: none any more) whose sample has
  /// computed them.
  std::vector<int32_t> prefix;
  uint64_t fork_of = 0;
  int32_t fork_sample = 0;
};

/// Broker -> worker, "control". `kCancel` concerns the request of the number in front; the others
/// have number 0.
enum class WorkerControl {
  kCancel,
  kDrain,  ///< admit nothing more, end the live requests, then say stopped
  kStop,   ///< end now
};

// Worker -> broker, "event" with number 0.

/// The first message of a worker.
struct WorkerHello {
  int32_t pid = 0;
  std::string version;  ///< must equal the broker's
  std::string device;   ///< "cpu", "cuda:0"
  bool operator==(const WorkerHello&) const = default;
};
/// Before any weight is in memory: what will be.
struct WorkerPlan {
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;
  uint64_t other_bytes = 0;  ///< activations, logits, index
  bool operator==(const WorkerPlan&) const = default;
};
struct WorkerLoadProgress {
  uint64_t bytes_done = 0;
  uint64_t bytes_total = 0;
  std::string stage = "reading";  ///< or "warming_up"
  bool operator==(const WorkerLoadProgress&) const = default;
};
/// Serves from here on.
struct WorkerReady {
  std::string model;
  std::string architecture;
  std::string title;
  std::string file_type;
  std::string fingerprint;
  std::string device;  ///< with the path chosen: "cpu avx512-vnni"
  int32_t context_length = 0;
  int32_t vocab_size = 0;
  uint64_t num_parameters = 0;
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;
  int64_t load_ms = 0;
  std::string draft;  ///< the model that guesses for it; "": none
  bool operator==(const WorkerReady&) const = default;
};
/// Cannot serve; the worker ends after it.
struct WorkerFailed {
  Error error;
};
/// A sign of life of the engine thread, a few times a second.
struct WorkerHeartbeat {
  WorkerSnapshot snapshot;
  bool operator==(const WorkerHeartbeat&) const = default;
};
/// Drained; the worker ends after it.
struct WorkerStopped {
  bool operator==(const WorkerStopped&) const = default;
};
using WorkerEvent = std::variant<WorkerHello, WorkerLoadProgress, WorkerReady, WorkerFailed,
                                 WorkerHeartbeat, WorkerStopped, WorkerPlan>;

}  // namespace hearth::ipc
