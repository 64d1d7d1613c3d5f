#pragma once
// Requests as plain data. Their ranges are in request_fields.h; the defaults here hold.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace hearth::ipc {

enum class Verb {
  kPing,  ///< answered by the broker at once, with the daemon's instance id
  kGenerate,
  kTokenize,
  kCancel,
  kModels,
  kPs,  ///< live requests of the caller; for an administrator, all of them
  kStats,
  kHealth,
  kLoad,    ///< loads a model; answered once it is resident
  kUnload,  ///< unloads a model once its requests have ended
  kSwap,    ///< points a role at another model once that is resident
  kCache,   ///< manages the caller's prefixes on disk; for an administrator, all of them
  kAttach,  ///< the answers of a live or recently ended request of the same owner
  kFork,    ///< continues from what such a request has generated so far; answered like generate
  kEmbed,   ///< computes embeddings of texts
  kRecord,  ///< sends the caller's own requests as they end, with their timings
};
inline constexpr int kNumVerbs = 16;

/// A JSON value that is passed on unparsed; the code that uses it checks its contents.
struct JsonText {
  std::string text;  ///< "": an empty list or object
  bool empty() const { return text.empty(); }
  bool operator==(const JsonText&) const = default;
};

/// A generate request with its ranges checked.
struct GenerateRequest {
  std::string model = "default";     ///< a role or a model's name
  std::string prompt;                ///< text; or
  std::string prompt_as = "text";    ///< or message: a user's, if the model has a chat template
  std::string suffix;                ///< text that follows the answer, which fills the gap
  std::vector<int32_t> prompt_ids;   ///< token ids, computed exactly as given; or
  JsonText messages;                 ///< a list of objects, for the model's chat template
  JsonText tools;                    ///< a list of objects: the functions passed to the template
  std::string tool_choice = "auto";  ///< auto, none, required, or a function's name
  bool parallel_tool_calls = true;   ///< false: a sample ends with its first call
  std::string tool_form = "auto";  ///< auto (as configured), template, hermes: see the field table
  JsonText template_kwargs;        ///< an object: more variables for the template
  bool raw = false;                ///< no BOS token is prepended
  bool parse_special = false;      ///< control tokens in the prompt's text become tokens
  int32_t n = 1;
  std::string reasoning = "auto";  ///< auto, off, on: see the field table
  int32_t reasoning_budget = 0;    ///< reasoning is closed after as many tokens; 0: no bound
  int32_t max_tokens = 256;        ///< 0: as many as the context has room for
  bool clip_max_tokens = false;    ///< lower it to the context's room; false: refuse
  int32_t min_tokens = 0;
  int32_t steps = 0;         ///< passes of a model that denoises; 0: the model's
  int32_t block_length = 0;  ///< tokens of its canvas that are filled together; 0: the model's
  std::string remasking = "auto";  ///< auto (the model's), or a rule: see the field table
  // Absent: the model's SamplingDefaults apply.
  std::optional<float> temperature;
  std::optional<int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  float typical_p = 1.0f;
  std::optional<float> repetition_penalty;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  std::optional<int32_t> penalty_window;
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::optional<uint64_t> seed;   ///< absent: the daemon chooses; `done` reports it
  std::vector<std::string> stop;  ///< stop strings; not part of the text
  std::vector<int32_t> stop_ids;
  bool ignore_eos = false;
  int32_t logprobs = -1;  ///< -1: none; 0..20: that many alternatives
  bool prompt_logprobs = false;
  std::string priority = "normal";  ///< interactive, normal, batch
  int64_t deadline_ms = 0;          ///< from receipt; 0: none
  bool speculate = true;            ///< draft tokens: the same text, sooner
  std::string prediction;           ///< a text that the answer may resemble, as a draft
  std::string draft = "auto";       ///< draft model in addition to lookup: auto, none, or a name
  std::string adapter;              ///< NAME or NAME=SCALE, several with commas; "": none
  std::string cache = "disk";       ///< where the prefix is looked up and kept: off, memory, disk
  int64_t cache_keep_s = 0;         ///< the prompt's prefix is not evicted from disk for this long
  int32_t cache_keep_tokens = 0;    ///< only its first tokens, this many; 0: all
  int32_t cache_keep_bytes = 0;     ///< the same in bytes of the prompt's text; 0: all
  std::string cache_share;          ///< shared with owners that give the same name; "": not shared
  std::string json_schema;          ///< JSON text of a schema that constrains the text; empty: none
  bool relax_schema = false;        ///< leave out what cannot be enforced; false: refuse
  std::string grammar;              ///< GBNF that constrains the text; empty: none
  std::string regex;                ///< regular expression of the whole text; empty: none
  bool detach = false;              ///< continues when its client leaves; see `attach`
  std::optional<bool> remote;       ///< the role's remote may answer it; absent: as configured
  bool operator==(const GenerateRequest&) const = default;
};

struct TokenizeRequest {
  std::string model = "default";
  std::string text;  ///< this, messages or ids
  bool raw = false;
  bool parse_special = false;
  JsonText messages{};             ///< a conversation, rendered by the model's chat template
  JsonText tools{};                ///< with `messages`, as in GenerateRequest
  std::string tool_form = "auto";  ///< with `messages`, as in GenerateRequest
  JsonText template_kwargs{};
  std::string reasoning = "auto";  ///< with `messages`, as in GenerateRequest
  std::vector<int32_t> ids{};      ///< whose text is wanted
  bool operator==(const TokenizeRequest&) const = default;
};

/// Cancels a live request of the same owner. That request then ends with `done`, reason cancelled.
struct CancelRequest {
  std::string id;          ///< the request to cancel
  bool reasoning = false;  ///< end only its reasoning; the answer goes on
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

/// For administrators, like the next two. Loading continues if the client disconnects.
struct LoadRequest {
  std::string model = "default";
  int64_t keep_alive_ms = -1;  ///< unloaded after being idle this long; 0: never; -1: as configured
  std::string draft = "auto";  ///< its draft model: auto (unchanged, or as configured), none, name
  bool operator==(const LoadRequest&) const = default;
};
struct UnloadRequest {
  std::string model = "default";
  std::string adapter{};  ///< only this adapter of it, if no request uses it; "": the model
  bool keep = false;      ///< its worker stays, asleep
  bool operator==(const UnloadRequest&) const = default;
};
/// From one moment on, requests that name the role use the new model; running ones finish on the
/// old one. If the model cannot be loaded, nothing changes.
struct SwapRequest {
  std::string role = "default";
  std::string model;
  bool operator==(const SwapRequest&) const = default;
};

/// What `hearth cache` does on files, for users that cannot access the daemon's.
struct CacheRequest {
  std::string op = "ls";           ///< ls, stats, rm, pin, unpin, verify, compact, why
  std::string model;               ///< only this model's prefixes; "": all models'
  std::vector<std::string> names;  ///< as ls prints them; why: one request id
  int64_t ttl_s = 3600;            ///< pin: for this long
  bool all = false;                ///< rm: without names; administrators: of every owner
  bool wipe = false;               ///< rm: overwrite the bytes in the files
  bool show_text = false;          ///< ls: first words
  bool as_json = false;            ///< ls, stats
  bool operator==(const CacheRequest&) const = default;
};

/// The answers of a request from a given token on: an AttachedEvent, what was already sent, then
/// what follows, in the form of `generate`.
struct AttachRequest {
  std::string id;    ///< the request
  int32_t from = 0;  ///< per sample: start with the delta that holds this token
  bool operator==(const AttachRequest&) const = default;
};

/// New samples that continue after the first tokens of a request's sample, as if those ended its
/// prompt. All other settings are that request's.
struct ForkRequest {
  std::string id;                ///< the request
  int32_t sample = 0;            ///< its sample
  int32_t from = -1;             ///< after this many of its tokens; -1: after all that it has
  int32_t n = 1;                 ///< new samples
  int32_t max_tokens = 0;        ///< of each; 0: what the request had left at that token
  std::optional<uint64_t> seed;  ///< absent: the daemon chooses; `done` reports it
  bool detach = false;
  bool operator==(const ForkRequest&) const = default;
};

struct EmbedRequest {
  std::string model = "default";
  std::vector<std::string> texts;         ///< one vector for each; or
  std::vector<std::vector<int32_t>> ids;  ///< token ids, computed exactly as given
  std::string pooling = "auto";           ///< auto (as in the model's file), mean, cls, last
  bool normalize = true;                  ///< each vector has length 1, each score is 0 to 1
  std::string query{};  ///< not empty: for each text a score of how well it answers this
  bool operator==(const EmbedRequest&) const = default;
};

/// The caller's own generate and embed requests that arrive from now on, each once it has ended: a
/// RecordingEvent, then a RecordedEvent for each, until the connection ends.
struct RecordRequest {
  bool text = false;  ///< with their content and digests of their answers; false: the shape alone
  bool operator==(const RecordRequest&) const = default;
};

/// What a client sends. The alternatives are in the order of `Verb`.
using ClientRequest =
    std::variant<PingRequest, GenerateRequest, TokenizeRequest, CancelRequest, ModelsRequest,
                 PsRequest, StatsRequest, HealthRequest, LoadRequest, UnloadRequest, SwapRequest,
                 CacheRequest, AttachRequest, ForkRequest, EmbedRequest, RecordRequest>;
inline Verb verb_of(const ClientRequest& request) { return static_cast<Verb>(request.index()); }

/// The requests that a worker computes.
using ComputeRequest = std::variant<GenerateRequest, TokenizeRequest, EmbedRequest>;

/// Wire name, e.g. "generate".
std::string_view name(Verb verb);
std::optional<Verb> verb_from_name(std::string_view name);

}  // namespace hearth::ipc
