#include "ipc/schema/field_table.h"

#include <array>

#include "ipc/schema/protocol.h"

namespace hearth::ipc {
namespace {

constexpr uint32_t bit(Verb verb) { return 1u << static_cast<int>(verb); }
constexpr uint32_t kGen = bit(Verb::kGenerate);
constexpr uint32_t kTok = bit(Verb::kTokenize);
constexpr uint32_t kCan = bit(Verb::kCancel);
constexpr uint32_t kLoad = bit(Verb::kLoad);
constexpr uint32_t kUnload = bit(Verb::kUnload);
constexpr uint32_t kSwap = bit(Verb::kSwap);
constexpr uint32_t kCac = bit(Verb::kCache);
constexpr uint32_t kAtt = bit(Verb::kAttach);
constexpr uint32_t kFork = bit(Verb::kFork);
constexpr uint32_t kEmb = bit(Verb::kEmbed);

constexpr double kTextBytes = 16u << 20;
constexpr double kSchemaBytes = 256u << 10;
constexpr double kTokens = 1'048'576;
constexpr double kMonthS = 30.0 * 24 * 3600;
constexpr double kWeekMs = 7.0 * 24 * 3600 * 1000;
constexpr double kId = kMaxTokenId;

using T = FieldType;
constexpr auto kFields = std::to_array<Field>({
    // name, type, verbs, min, max, items, unit, default, meaning
    {"model", T::kName, kGen | kTok | kEmb | kLoad | kUnload, 1, 4096, 0, 0, "bytes", "\"default\"",
     "A role (`default`, or one of the configuration) or the name of a model file, without suffix. "
     "From the daemon's own user on the local socket also a file's absolute path."},
    {"prompt", T::kText, kGen, 0, kTextBytes, 0, 0, "bytes", "",
     "The text to go on from; this, `prompt_ids` or `messages`, exactly one of them."},
    {"prompt_as", T::kChoice, kGen, 0, 0, 0, 0, "", "\"text\"",
     "`text`: `prompt` is continued. `message`: it is a user's message, put into words by the "
     "model's chat template; a model without one continues it."},
    {"prompt_ids", T::kIdList, kGen, 0, kId, 1, 1'048'576, "tokens", "",
     "The prompt as token ids, computed exactly as given: no BOS is put in front."},
    {"messages", T::kObjects, kGen | kTok, 0, 0, 1, 4096, "", "",
     "A conversation, each an object with `role` and `content`, put into words by the model's chat "
     "template. A message, or a tool, with `cache_keep_s` (0 to 2592000) keeps it and all before "
     "it "
     "on disk so long; with `cache_keep_bytes` beside it up to so many bytes of its `content`. At "
     "most four do."},
    {"tools", T::kObjects, kGen | kTok, 0, 0, 0, 256, "", "[]",
     "With `messages`: the functions that the template tells the model of."},
    {"tool_choice", T::kName, kGen, 1, 256, 0, 0, "bytes", "\"auto\"",
     "`auto`, `none` (the template is told of no tools), `required`, or the name of the function "
     "to call. What is required is enforced: the arguments are valid against the function's "
     "schema."},
    {"parallel_tool_calls", T::kBool, kGen, 0, 0, 0, 0, "", "true",
     "With `tools`: false ends a sample with its first call."},
    {"template_kwargs", T::kObject, kGen | kTok, 0, 0, 0, 0, "", "{}",
     "With `messages`: more variables for the template, such as `enable_thinking`."},
    {"text", T::kText, kTok, 0, kTextBytes, 0, 0, "bytes", "",
     "The text to turn into tokens; this or `messages`."},
    {"raw", T::kBool, kGen | kTok, 0, 0, 0, 0, "", "false",
     "Put no BOS token in front of the text, whatever the model's metadata say."},
    {"parse_special", T::kBool, kGen | kTok, 0, 0, 0, 0, "", "false",
     "Control tokens written in the text become those tokens; otherwise they stay text."},
    {"n", T::kInteger, kGen | kFork, 1, 16, 0, 0, "samples", "1",
     "Samples grown from the prompt; they share its KV blocks."},
    {"max_tokens", T::kInteger, kGen, 0, kTokens, 0, 0, "tokens", "256",
     "Tokens per sample, at most; prompt and `max_tokens` must fit the context together. 0: as "
     "many "
     "as the context has room for."},
    {"min_tokens", T::kInteger, kGen, 0, kTokens, 0, 0, "tokens", "0",
     "No sample ends by itself before so many tokens; at most `max_tokens`."},
    {"temperature", T::kNumber, kGen, 0, 10, 0, 0, "", "",
     "Divides the logits; 0 always takes the likeliest token (ties: the lowest id). Absent: the "
     "model's, else 0.8."},
    {"top_k", T::kInteger, kGen, 0, kTokens, 0, 0, "tokens", "",
     "Keeps the likeliest k tokens; 0 keeps all. Absent: the model's, else 40."},
    {"top_p", T::kNumber, kGen, 0, 1, 0, 0, "", "",
     "Keeps the fewest tokens whose probability together reaches this; 1 keeps all. Absent: the "
     "model's, else 0.95."},
    {"min_p", T::kNumber, kGen, 0, 1, 0, 0, "", "",
     "Drops tokens less likely than this share of the likeliest one's probability; 0 drops none. "
     "Absent: the model's, else 0."},
    {"typical_p", T::kNumber, kGen, 0, 1, 0, 0, "", "1",
     "Keeps the most typical tokens up to this probability; 1 keeps all."},
    {"repetition_penalty", T::kNumber, kGen, 0.01, 10, 0, 0, "", "",
     "Divides positive and multiplies negative logits of tokens already there; 1 changes nothing. "
     "Absent: the model's, else 1."},
    {"presence_penalty", T::kNumber, kGen, -10, 10, 0, 0, "", "0",
     "Subtracted from the logit of each token already there."},
    {"frequency_penalty", T::kNumber, kGen, -10, 10, 0, 0, "", "0",
     "Subtracted from a token's logit once for each time it is already there."},
    {"penalty_window", T::kInteger, kGen, -1, kTokens, 0, 0, "tokens", "",
     "How many last tokens of prompt and output the penalties look at; -1: all. Absent: the "
     "model's, else 256."},
    {"logit_bias", T::kLogitBias, kGen, -10000, 10000, 0, 1024, "", "[]",
     "Pairs `[token id, number]`: the number is added to that token's logit."},
    {"seed", T::kSeed, kGen | kFork, 0, 18446744073709551615.0, 0, 0, "", "",
     "The same request with the same seed gives the same text, whatever else runs; absent: the "
     "daemon chooses one, and `done` reports it."},
    {"stop", T::kTextList, kGen, 1, 256, 0, 16, "bytes", "[]",
     "A sample ends before the first of these strings; the string is not part of the text."},
    {"stop_ids", T::kIdList, kGen, 0, kId, 0, 256, "tokens", "[]",
     "A sample ends with the first of these tokens, as it does with the model's end token."},
    {"ignore_eos", T::kBool, kGen, 0, 0, 0, 0, "", "false",
     "Go on past the model's end tokens, up to `max_tokens`."},
    {"logprobs", T::kInteger, kGen, -1, 20, 0, 0, "tokens", "-1",
     "Log probability of each token and of that many likeliest alternatives; -1: none."},
    {"prompt_logprobs", T::kBool, kGen, 0, 0, 0, 0, "", "false",
     "Also the log probability of each prompt token given those before it."},
    {"priority", T::kChoice, kGen, 0, 0, 0, 0, "", "\"normal\"",
     "The scheduler's class: `interactive` goes before `normal`, `normal` before `batch`."},
    {"deadline_ms", T::kInteger, kGen, 0, kWeekMs, 0, 0, "ms", "0",
     "Ends the request with reason `deadline` so long after it was received; 0: never."},
    {"speculate", T::kBool, kGen, 0, 0, 0, 0, "", "true",
     "Guess tokens ahead and verify several in one step where that pays; the text is the same."},
    {"draft", T::kName, kGen, 1, 256, 0, 0, "bytes", "\"auto\"",
     "The small model that guesses too: `auto`, the one that the model was loaded with if any; "
     "`none`; or its name, which is refused where the model was loaded with another or none."},
    {"cache", T::kChoice, kGen, 0, 0, 0, 0, "", "\"disk\"",
     "Where the prefix is looked up and kept: `off`, in `memory`, or on `disk` too, as far as the "
     "configuration lets this owner."},
    {"cache_keep_s", T::kInteger, kGen, 0, kMonthS, 0, 0, "s", "0",
     "The prompt's prefix stays on disk so long, whatever else is evicted there, as far as its "
     "owner's bound for pins allows; 0: it is kept like any other."},
    {"cache_keep_tokens", T::kInteger, kGen, 0, kTokens, 0, 0, "tokens", "0",
     "`cache_keep_s` is meant for the prompt's first so many tokens; 0: for all of it."},
    {"cache_keep_bytes", T::kInteger, kGen, 0, kTextBytes, 0, 0, "bytes", "0",
     "The same in bytes of the prompt's text: up to the end of a message, say; 0: for all of it."},
    {"cache_share", T::kName, kGen, 0, 64, 0, 0, "bytes", "\"\"",
     "The prefix is looked up and kept among those of everybody who gives the same name, which "
     "shows them by its speed what was asked before; empty: among the caller's own."},
    {"json_schema", T::kText, kGen, 1, kSchemaBytes, 0, 0, "bytes", "",
     "A JSON schema, as text: a sample that ends by itself is JSON that is valid against it."},
    {"grammar", T::kText, kGen, 1, kSchemaBytes, 0, 0, "bytes", "",
     "A grammar in GBNF: a sample that ends by itself is of its language; or `json_schema`, not "
     "both."},
    {"detach", T::kBool, kGen | kFork, 0, 0, 0, 0, "", "false",
     "Go on when the client leaves or reads too slowly; `attach` comes back to it by its id."},
    {"op", T::kChoice, kCac, 0, 0, 0, 0, "", "\"ls\"",
     "What to do with the prefixes kept on disk; `why`: tells why a request's prompt had to be "
     "computed. `verify` and `compact` are for admins."},
    {"model", T::kName, kCac, 0, 256, 0, 0, "bytes", "\"\"",
     "Only this model's prefixes; empty: those of all models."},
    {"names", T::kTextList, kCac, 1, 64, 0, 64, "bytes", "[]",
     "The prefixes meant, as `ls` shows them; for `why` a request's id."},
    {"ttl_s", T::kInteger, kCac, 1, kMonthS, 0, 0, "s", "3600", "`pin`: how long."},
    {"all", T::kBool, kCac, 0, 0, 0, 0, "", "false",
     "`rm`: all of the caller's, without names; from an admin, with every `op`: of every owner."},
    {"wipe", T::kBool, kCac, 0, 0, 0, 0, "", "false", "`rm`: leave no byte in the files."},
    {"show_text", T::kBool, kCac, 0, 0, 0, 0, "", "false", "`ls`: the first words of each."},
    {"as_json", T::kBool, kCac, 0, 0, 0, 0, "", "false", "`ls`, `stats`: the text is JSON."},
    {"id", T::kName, kCan, 1, kMaxRequestIdBytes, 0, 0, "bytes", "",
     "The request to end, one of the caller's own; required."},
    {"id", T::kName, kAtt | kFork, 1, kMaxRequestIdBytes, 0, 0, "bytes", "",
     "One of the caller's own requests, live or ended a short while ago; required."},
    {"from", T::kInteger, kAtt, 0, kTokens, 0, 0, "tokens", "0",
     "What was sent before is sent again from the delta that holds this token of a sample on, as "
     "far as it is kept."},
    {"sample", T::kInteger, kFork, 0, 15, 0, 0, "", "0", "The sample of it to go on from."},
    {"from", T::kInteger, kFork, -1, kTokens, 0, 0, "tokens", "-1",
     "Go on behind so many tokens of that sample; -1: behind all that it has."},
    {"max_tokens", T::kInteger, kFork, 0, kTokens, 0, 0, "tokens", "0",
     "Tokens per sample, at most; 0: as many as the request had left there."},
    {"texts", T::kTextList, kEmb, 0, kTextBytes, 1, 2048, "bytes", "",
     "One vector is computed for each; this, or `ids`."},
    {"ids", T::kIdLists, kEmb, 0, kId, 1, 2048, "tokens", "",
     "The same as token ids, computed exactly as given."},
    {"pooling", T::kChoice, kEmb, 0, 0, 0, 0, "", "\"auto\"",
     "How the tokens' rows become one vector: `auto`, as the model's file says; `mean`; `cls`, the "
     "first; `last`."},
    {"normalize", T::kBool, kEmb, 0, 0, 0, 0, "", "true", "Scale each vector to length 1."},
    {"keep_alive_ms", T::kInteger, kLoad, -1, kWeekMs, 0, 0, "ms", "-1",
     "Without a request for so long it leaves the memory; 0: never; -1: as configured."},
    {"draft", T::kName, kLoad, 1, 256, 0, 0, "bytes", "\"auto\"",
     "The small model that guesses for it: `auto`, as it is or else as configured; `none`; or a "
     "model's name. In memory with another, it is loaded again once its requests have ended."},
    {"role", T::kName, kSwap, 1, 256, 0, 0, "bytes", "\"default\"",
     "The role: `default`, or one of the configuration."},
    {"model", T::kName, kSwap, 1, 4096, 0, 0, "bytes", "",
     "The model file, without suffix, that the role shall point at; required."},
});

constexpr std::array<std::string_view, 3> kPriorities = {"interactive", "normal", "batch"};

constexpr std::array<std::string_view, 3> kCacheTiers = {"off", "memory", "disk"};

constexpr std::array<std::string_view, 8> kCacheOps = {"ls",    "stats",  "rm",      "pin",
                                                       "unpin", "verify", "compact", "why"};

constexpr std::array<std::string_view, 2> kPromptForms = {"text", "message"};

constexpr std::array<std::string_view, 4> kPoolings = {"auto", "mean", "cls", "last"};

constexpr std::array<std::string_view, kNumVerbs> kVerbNames = {
    "ping", "generate", "tokenize", "cancel", "models", "ps",   "stats", "health",
    "load", "unload",   "swap",     "cache",  "attach", "fork", "embed"};

}  // namespace

std::span<const Field> request_fields() { return kFields; }

const Field* find_field(Verb verb, std::string_view name) {
  for (const Field& field : kFields) {
    if (field.name == name && has_verb(field, verb)) return &field;
  }
  return nullptr;
}

std::span<const std::string_view> choices(const Field& field) {
  if (field.name == "priority") return kPriorities;
  if (field.name == "cache") return kCacheTiers;
  if (field.name == "op") return kCacheOps;
  if (field.name == "prompt_as") return kPromptForms;
  if (field.name == "pooling") return kPoolings;
  return {};
}

std::string_view name(Verb verb) { return kVerbNames[static_cast<size_t>(verb)]; }

std::optional<Verb> verb_from_name(std::string_view name) {
  for (size_t i = 0; i < kVerbNames.size(); ++i) {
    if (kVerbNames[i] == name) return static_cast<Verb>(i);
  }
  return std::nullopt;
}

}  // namespace hearth::ipc
