#pragma once
// What a client asks for, as plain data; ranges and defaults are those of the field tables.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace hearth::ipc {

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
  std::string prompt_as = "text";    ///< or message: a user's, where the model has a chat template
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
  // Absent: as the model's SamplingDefaults say.
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

}  // namespace hearth::ipc
