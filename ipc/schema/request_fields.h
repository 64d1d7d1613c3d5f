#pragma once
// The one table of request fields: each row binds a member of a request's struct to its name on the
// wire, range, unit and meaning. Codec, protocol page and command line are made from it, so a new
// field is a member in requests.h and a row here. Defaults are those of the structs. Included by
// .cpp files of ipc/ only.

#include <array>
#include <string_view>
#include <tuple>

#include "ipc/schema/field_table.h"
#include "ipc/schema/protocol.h"
#include "ipc/schema/requests.h"

namespace hearth::ipc {

template <class Request, class Member>
struct FieldRow {
  Member Request::*member;
  Field field;
};
template <class Request, class Member>
constexpr FieldRow<Request, Member> row(Member Request::*member, const Field& field) {
  return {member, field};
}

namespace request_fields {

inline constexpr double kTextBytes = 16u << 20;
inline constexpr double kSchemaBytes = 256u << 10;
inline constexpr double kPredictionBytes = 1u << 20;
inline constexpr double kTokens = 1'048'576;
inline constexpr double kMonthS = 30.0 * 24 * 3600;
inline constexpr double kWeekMs = 7.0 * 24 * 3600 * 1000;
inline constexpr double kLastId = kMaxTokenId;

inline constexpr std::array<std::string_view, 3> kReasonings = {"auto", "off", "on"};
inline constexpr std::array<std::string_view, 3> kToolForms = {"auto", "template", "hermes"};
inline constexpr std::array<std::string_view, 6> kRemaskings = {"auto",   "confidence", "entropy",
                                                                "margin", "random",     "origin"};
inline constexpr double kCanvasSteps = 4096, kCanvasBlock = 512;
inline constexpr std::array<std::string_view, 3> kPriorities = {"interactive", "normal", "batch"};
inline constexpr std::array<std::string_view, 3> kCacheTiers = {"off", "memory", "disk"};
inline constexpr std::array<std::string_view, 8> kCacheOps = {"ls",    "stats",  "rm",      "pin",
                                                              "unpin", "verify", "compact", "why"};
inline constexpr std::array<std::string_view, 2> kPromptForms = {"text", "message"};
inline constexpr std::array<std::string_view, 4> kPoolings = {"auto", "mean", "cls", "last"};

// Fields of several verbs.
constexpr Field token_ids(std::string_view name, std::string_view meaning) {
  return {.name = name,
          .type = FieldType::kIdList,
          .unit = "tokens",
          .meaning = meaning,
          .max = kLastId,
          .min_items = 1,
          .max_items = 1'048'576};
}
inline constexpr Field kModel = {
    .name = "model",
    .type = FieldType::kName,
    .unit = "bytes",
    .meaning =
        "A role (`default`, or one from the configuration) or the name of a model file, without "
        "suffix. The daemon's own user may also give a file's absolute path on the local socket.",
    .min = 1,
    .max = 4096};
inline constexpr Field kMessages = {
    .name = "messages",
    .type = FieldType::kObjects,
    .meaning =
        "A conversation: objects with `role` and `content`, rendered by the model's chat template. "
        "`cache_keep_s` (0 to 2592000) in a message or a tool keeps it and everything before it on "
        "disk for that many seconds; `cache_keep_bytes` next to it limits this to the first bytes "
        "of its `content`. At most four markers. `reasoning_of` names the model of the message's "
        "reasoning by its fingerprint; any other model gets the message without it.",
    .min_items = 1,
    .max_items = 4096};
inline constexpr Field kTools = {
    .name = "tools",
    .type = FieldType::kObjects,
    .meaning =
        "With `messages`: the functions offered to the model, in the template's form. `strict: "
        "true` in a function, which templates do not see, makes any call of a function valid.",
    .max_items = 256};
inline constexpr Field kToolForm = {
    .name = "tool_form",
    .type = FieldType::kChoice,
    .meaning =
        "With `tools`, if the model's chat template does not use them: `hermes` describes them "
        "in the system message and reads calls between `<tool_call>` and `</tool_call>`; "
        "`template` refuses them; `auto` takes `worker.tool_form`.",
    .choices = kToolForms};
inline constexpr Field kTemplateKwargs = {
    .name = "template_kwargs",
    .type = FieldType::kObject,
    .meaning =
        "With `messages`: additional variables for the template, such as `enable_thinking`."};
inline constexpr Field kReasoning = {
    .name = "reasoning",
    .type = FieldType::kChoice,
    .meaning =
        "With `messages`: `off` makes the template ask for an answer without reasoning, "
        "and is refused if the template has no way to; `on` makes it ask for reasoning, "
        "if it can; `auto` leaves it to the template.",
    .choices = kReasonings};
inline constexpr Field kRaw = {
    .name = "raw",
    .type = FieldType::kBool,
    .meaning = "Add no BOS token before the text, even if the model's metadata asks for one."};
inline constexpr Field kParseSpecial = {
    .name = "parse_special",
    .type = FieldType::kBool,
    .meaning = "Parse control tokens that are written in the text; otherwise they stay text."};
inline constexpr Field kN = {
    .name = "n",
    .type = FieldType::kInteger,
    .unit = "samples",
    .meaning = "Number of samples generated from the prompt; they share its KV blocks.",
    .min = 1,
    .max = 16};
inline constexpr Field kSeed = {
    .name = "seed",
    .type = FieldType::kSeed,
    .meaning =
        "The same request with the same seed gives the same text, whatever else runs. Absent: the "
        "daemon chooses one, and `done` reports it.",
    .max = 18446744073709551615.0};
inline constexpr Field kDetach = {.name = "detach",
                                  .type = FieldType::kBool,
                                  .meaning =
                                      "Continue when the client disconnects or reads too slowly; "
                                      "`attach` with its id shows it again."};
inline constexpr Field kId = {
    .name = "id",
    .type = FieldType::kName,
    .unit = "bytes",
    .meaning = "One of the caller's own requests, live or recently ended; required.",
    .min = 1,
    .max = kMaxRequestIdBytes};

/// The rows of a request, in the order of the protocol page.
template <class Request>
inline constexpr auto kRowsOf = std::tuple<>{};

template <>
inline constexpr auto kRowsOf<GenerateRequest> = std::tuple{
    row(&GenerateRequest::model, kModel),
    row(&GenerateRequest::prompt,
        {.name = "prompt",
         .type = FieldType::kText,
         .unit = "bytes",
         .meaning = "The text to continue. Exactly one of `prompt`, `prompt_ids` and `messages`.",
         .max = kTextBytes,
         .one_of_several = true}),
    row(&GenerateRequest::prompt_as,
        {.name = "prompt_as",
         .type = FieldType::kChoice,
         .meaning = "`text`: the prompt is continued. `message`: the prompt is a user's message, "
                    "rendered by the model's chat template; a model without one continues it.",
         .choices = kPromptForms}),
    row(&GenerateRequest::suffix,
        {.name = "suffix",
         .type = FieldType::kText,
         .unit = "bytes",
         .meaning = "With `prompt`: the text that follows the answer, which then fills the gap. "
                    "Refused for a model without tokens for it.",
         .max = kTextBytes}),
    row(&GenerateRequest::prompt_ids,
        token_ids("prompt_ids",
                  "The prompt as token ids, used exactly as given: no BOS token is added.")),
    row(&GenerateRequest::messages, kMessages),
    row(&GenerateRequest::tools, kTools),
    row(&GenerateRequest::tool_form, kToolForm),
    row(&GenerateRequest::tool_choice,
        {.name = "tool_choice",
         .type = FieldType::kName,
         .unit = "bytes",
         .meaning = "`auto`, `none` (the template gets no tools), `required`, or the name of the "
                    "function to call. A required call is enforced: its arguments are valid "
                    "against the function's schema.",
         .min = 1,
         .max = 256}),
    row(&GenerateRequest::parallel_tool_calls,
        {.name = "parallel_tool_calls",
         .type = FieldType::kBool,
         .meaning = "With `tools`: false ends a sample after its first call."}),
    row(&GenerateRequest::template_kwargs, kTemplateKwargs),
    row(&GenerateRequest::raw, kRaw),
    row(&GenerateRequest::parse_special, kParseSpecial),
    row(&GenerateRequest::n, kN),
    row(&GenerateRequest::reasoning, kReasoning),
    row(&GenerateRequest::reasoning_budget,
        {.name = "reasoning_budget",
         .type = FieldType::kInteger,
         .unit = "tokens",
         .meaning = "With `messages`: after this many tokens of reasoning the template's mark that "
                    "ends it follows, and the answer goes on. 0: no bound.",
         .max = kTokens}),
    row(&GenerateRequest::max_tokens,
        {.name = "max_tokens",
         .type = FieldType::kInteger,
         .unit = "tokens",
         .meaning = "At most this many tokens per sample; prompt and `max_tokens` together must "
                    "fit in the context. 0: as many as fit.",
         .max = kTokens}),
    row(&GenerateRequest::clip_max_tokens,
        {.name = "clip_max_tokens",
         .type = FieldType::kBool,
         .meaning =
             "Lower `max_tokens` to the room that the prompt leaves in the context, in place "
             "of refusing it; `started` reports the bound."}),
    row(&GenerateRequest::min_tokens,
        {.name = "min_tokens",
         .type = FieldType::kInteger,
         .unit = "tokens",
         .meaning = "No sample ends by itself before this many tokens; at most `max_tokens`.",
         .max = kTokens}),
    row(&GenerateRequest::steps,
        {.name = "steps",
         .type = FieldType::kInteger,
         .unit = "passes",
         .meaning = "For a model that denoises: passes over the canvas of `max_tokens`; its blocks "
                    "share them. 0: the model's, else one for each token.",
         .max = kCanvasSteps}),
    row(&GenerateRequest::block_length,
        {.name = "block_length",
         .type = FieldType::kInteger,
         .unit = "tokens",
         .meaning = "For a model that denoises: the canvas is filled in blocks of this many "
                    "tokens, one after another. 0: the model's, else as large as possible.",
         .max = kCanvasBlock}),
    row(&GenerateRequest::remasking,
        {.name = "remasking",
         .type = FieldType::kChoice,
         .meaning =
             "For a model that denoises: a pass fills the places with the most `confidence`, the "
             "least `entropy` or the widest `margin` over the second token, as many at `random`, "
             "or each with the same chance (`origin`); `auto`: the model's.",
         .choices = kRemaskings}),
    row(&GenerateRequest::temperature,
        {.name = "temperature",
         .type = FieldType::kNumber,
         .meaning = "Divides the logits; 0 always takes the likeliest token (of equals, the lowest "
                    "id). Absent: the model's, else 0.8.",
         .max = 10}),
    row(&GenerateRequest::top_k,
        {.name = "top_k",
         .type = FieldType::kInteger,
         .unit = "tokens",
         .meaning = "Keeps the likeliest k tokens; 0 keeps all. Absent: the model's, else 40.",
         .max = kTokens}),
    row(&GenerateRequest::top_p,
        {.name = "top_p",
         .type = FieldType::kNumber,
         .meaning = "Keeps the smallest set of tokens whose total probability reaches this; 1 "
                    "keeps all. Absent: the model's, else 0.95.",
         .max = 1}),
    row(&GenerateRequest::min_p,
        {.name = "min_p",
         .type = FieldType::kNumber,
         .meaning = "Drops tokens whose probability is below this share of the likeliest token's; "
                    "0 drops none. Absent: the model's, else 0.",
         .max = 1}),
    row(&GenerateRequest::typical_p,
        {.name = "typical_p",
         .type = FieldType::kNumber,
         .meaning = "Keeps the most typical tokens up to this probability; 1 keeps all.",
         .max = 1}),
    row(&GenerateRequest::repetition_penalty,
        {.name = "repetition_penalty",
         .type = FieldType::kNumber,
         .meaning = "Divides positive and multiplies negative logits of tokens that occurred "
                    "already; 1 changes nothing. Absent: the model's, else 1.",
         .min = 0.01,
         .max = 10}),
    row(&GenerateRequest::presence_penalty,
        {.name = "presence_penalty",
         .type = FieldType::kNumber,
         .meaning = "Subtracted from the logit of each token that occurred already.",
         .min = -10,
         .max = 10}),
    row(&GenerateRequest::frequency_penalty,
        {.name = "frequency_penalty",
         .type = FieldType::kNumber,
         .meaning = "Subtracted from a token's logit once for each earlier occurrence.",
         .min = -10,
         .max = 10}),
    row(&GenerateRequest::penalty_window,
        {.name = "penalty_window",
         .type = FieldType::kInteger,
         .unit = "tokens",
         .meaning = "The penalties count this many last tokens of prompt and output; -1: all. "
                    "Absent: the model's, else 256.",
         .min = -1,
         .max = kTokens}),
    row(&GenerateRequest::logit_bias,
        {.name = "logit_bias",
         .type = FieldType::kLogitBias,
         .meaning = "Pairs `[token id, number]`: the number is added to that token's logit.",
         .min = -10000,
         .max = 10000,
         .max_items = 1024}),
    row(&GenerateRequest::seed, kSeed),
    row(&GenerateRequest::stop,
        {.name = "stop",
         .type = FieldType::kTextList,
         .unit = "bytes",
         .meaning =
             "A sample ends before the first of these strings, which is not part of the text.",
         .min = 1,
         .max = 256,
         .max_items = 16}),
    row(&GenerateRequest::stop_ids,
        {.name = "stop_ids",
         .type = FieldType::kIdList,
         .unit = "tokens",
         .meaning =
             "A sample ends with the first of these tokens, as it does with the model's end token.",
         .max = kLastId,
         .max_items = 256}),
    row(&GenerateRequest::ignore_eos,
        {.name = "ignore_eos",
         .type = FieldType::kBool,
         .meaning = "Continue past the model's end tokens, up to `max_tokens`."}),
    row(&GenerateRequest::logprobs, {.name = "logprobs",
                                     .type = FieldType::kInteger,
                                     .unit = "tokens",
                                     .meaning = "Return the log probability of each token and of "
                                                "this many likeliest alternatives; -1: none.",
                                     .min = -1,
                                     .max = 20}),
    row(&GenerateRequest::prompt_logprobs,
        {.name = "prompt_logprobs",
         .type = FieldType::kBool,
         .meaning = "Also return the log probability of each prompt token given those before it."}),
    row(&GenerateRequest::priority,
        {.name = "priority",
         .type = FieldType::kChoice,
         .meaning =
             "Scheduling class: `interactive` goes before `normal`, `normal` before `batch`.",
         .choices = kPriorities}),
    row(&GenerateRequest::deadline_ms,
        {.name = "deadline_ms",
         .type = FieldType::kInteger,
         .unit = "ms",
         .meaning =
             "End the request with reason `deadline` this long after it was received; 0: never.",
         .max = kWeekMs}),
    row(&GenerateRequest::speculate,
        {.name = "speculate",
         .type = FieldType::kBool,
         .meaning = "Draft tokens ahead and verify several in one step where that is faster; the "
                    "text is the same."}),
    row(&GenerateRequest::prediction,
        {.name = "prediction",
         .type = FieldType::kText,
         .unit = "bytes",
         .meaning = "A text that the answer may resemble, such as a file before an edit. Where "
                    "they agree the answer comes sooner; it is the same.",
         .max = kPredictionBytes}),
    row(&GenerateRequest::draft,
        {.name = "draft",
         .type = FieldType::kName,
         .unit = "bytes",
         .meaning =
             "The draft model: `auto`, the one the model was loaded with, if any; `none`; or a "
             "name, which is refused if the model was loaded with another draft or none.",
         .min = 1,
         .max = 256}),
    row(&GenerateRequest::adapter,
        {.name = "adapter",
         .type = FieldType::kName,
         .unit = "bytes",
         .meaning =
             "A low-rank adapter, by the name of its file in a folder `adapters` of a model "
             "directory; `NAME=0.5` scales what it adds. Up to four, with commas between them.",
         .max = 1024}),
    row(&GenerateRequest::cache,
        {.name = "cache",
         .type = FieldType::kChoice,
         .meaning = "Where the prefix is looked up and stored: `off`, in `memory`, or also on "
                    "`disk`, as far as the configuration allows.",
         .choices = kCacheTiers}),
    row(&GenerateRequest::cache_keep_s,
        {.name = "cache_keep_s",
         .type = FieldType::kInteger,
         .unit = "s",
         .meaning = "Keep the prompt's prefix on disk for this long, whatever else is evicted, "
                    "within the owner's limit for pins; 0: it can be evicted like any other.",
         .max = kMonthS}),
    row(&GenerateRequest::cache_keep_tokens,
        {.name = "cache_keep_tokens",
         .type = FieldType::kInteger,
         .unit = "tokens",
         .meaning =
             "`cache_keep_s` applies to this many first tokens of the prompt; 0: to all of it.",
         .max = kTokens}),
    row(&GenerateRequest::cache_keep_bytes,
        {.name = "cache_keep_bytes",
         .type = FieldType::kInteger,
         .unit = "bytes",
         .meaning = "The same in bytes of the prompt's text, for example up to the end of a "
                    "message; 0: all of it.",
         .max = kTextBytes}),
    row(&GenerateRequest::cache_share,
        {.name = "cache_share",
         .type = FieldType::kName,
         .unit = "bytes",
         .meaning =
             "Share the prefix with all users that give the same name. They can learn from the "
             "speed of an answer what was asked before. Empty: only the caller's own prefixes.",
         .max = 64}),
    row(&GenerateRequest::json_schema,
        {.name = "json_schema",
         .type = FieldType::kText,
         .unit = "bytes",
         .meaning = "A JSON schema, as text: a sample that ends by itself is valid against it.",
         .min = 1,
         .max = kSchemaBytes}),
    row(&GenerateRequest::relax_schema,
        {.name = "relax_schema",
         .type = FieldType::kBool,
         .meaning = "Leave out keywords of the schema, or of functions' parameters, that cannot be "
                    "enforced, in place of refusing them; `started` names them."}),
    row(&GenerateRequest::grammar, {.name = "grammar",
                                    .type = FieldType::kText,
                                    .unit = "bytes",
                                    .meaning = "A grammar in GBNF: a sample that ends by itself "
                                               "matches it. Not with `json_schema` or `regex`.",
                                    .min = 1,
                                    .max = kSchemaBytes}),
    row(&GenerateRequest::regex, {.name = "regex",
                                  .type = FieldType::kText,
                                  .unit = "bytes",
                                  .meaning = "A regular expression of the whole text.",
                                  .min = 1,
                                  .max = kSchemaBytes}),
    row(&GenerateRequest::detach, kDetach),
    row(&GenerateRequest::remote,
        {.name = "remote",
         .type = FieldType::kBool,
         .meaning = "Whether the remote of the role that `model` names may answer, if the role has "
                    "one: false keeps the request on this machine. Absent: as the configuration "
                    "has it for the request's user, else false."})};

template <>
inline constexpr auto kRowsOf<TokenizeRequest> = std::tuple{
    row(&TokenizeRequest::model, kModel),
    row(&TokenizeRequest::messages, kMessages),
    row(&TokenizeRequest::tools, kTools),
    row(&TokenizeRequest::tool_form, kToolForm),
    row(&TokenizeRequest::template_kwargs, kTemplateKwargs),
    row(&TokenizeRequest::reasoning, kReasoning),
    row(&TokenizeRequest::text, {.name = "text",
                                 .type = FieldType::kText,
                                 .unit = "bytes",
                                 .meaning = "The text to tokenize; this, `messages` or `ids`.",
                                 .max = kTextBytes,
                                 .one_of_several = true}),
    row(&TokenizeRequest::ids, token_ids("ids", "Token ids whose text is wanted.")),
    row(&TokenizeRequest::raw, kRaw),
    row(&TokenizeRequest::parse_special, kParseSpecial)};

template <>
inline constexpr auto kRowsOf<CancelRequest> = std::tuple{
    row(&CancelRequest::id, {.name = "id",
                             .type = FieldType::kName,
                             .unit = "bytes",
                             .meaning = "The request to end, one of the caller's own; required.",
                             .min = 1,
                             .max = kMaxRequestIdBytes}),
    row(&CancelRequest::reasoning,
        {.name = "reasoning",
         .type = FieldType::kBool,
         .meaning = "End only its reasoning, now or as soon as it begins: the mark that ends it "
                    "follows, and the answer goes on, as with a `reasoning_budget`. Nothing "
                    "changes if it has none."})};

template <>
inline constexpr auto kRowsOf<LoadRequest> = std::tuple{
    row(&LoadRequest::model, kModel),
    row(&LoadRequest::keep_alive_ms,
        {.name = "keep_alive_ms",
         .type = FieldType::kInteger,
         .unit = "ms",
         .meaning =
             "Unload the model after this time without a request; 0: never; -1: as configured.",
         .min = -1,
         .max = kWeekMs}),
    row(&LoadRequest::draft,
        {.name = "draft",
         .type = FieldType::kName,
         .unit = "bytes",
         .meaning = "Its draft model: `auto`, the loaded one or else the configured one; `none`; "
                    "or a model's name. A model that is loaded with another draft is loaded again "
                    "once its requests have ended.",
         .min = 1,
         .max = 256})};

template <>
inline constexpr auto kRowsOf<UnloadRequest> = std::tuple{
    row(&UnloadRequest::model, kModel),
    row(&UnloadRequest::adapter,
        {.name = "adapter",
         .type = FieldType::kName,
         .unit = "bytes",
         .meaning = "Unload only this adapter of the model, if no request uses it.",
         .max = 256}),
    row(&UnloadRequest::keep,
        {.name = "keep",
         .type = FieldType::kBool,
         .meaning = "Keep the worker asleep: it gives back its weights and unused KV, and "
                    "wakes with the next request or `load`."})};

template <>
inline constexpr auto kRowsOf<SwapRequest> = std::tuple{
    row(&SwapRequest::role, {.name = "role",
                             .type = FieldType::kName,
                             .unit = "bytes",
                             .meaning = "The role: `default`, or one from the configuration.",
                             .min = 1,
                             .max = 256}),
    row(&SwapRequest::model,
        {.name = "model",
         .type = FieldType::kName,
         .unit = "bytes",
         .meaning = "The model file, without suffix, that the role will point at; required.",
         .min = 1,
         .max = 4096})};

template <>
inline constexpr auto kRowsOf<CacheRequest> = std::tuple{
    row(&CacheRequest::op,
        {.name = "op",
         .type = FieldType::kChoice,
         .meaning = "The operation on the prefixes on disk; `why` explains why a request's prompt "
                    "had to be computed. `verify` and `compact` are for administrators.",
         .choices = kCacheOps}),
    row(&CacheRequest::model, {.name = "model",
                               .type = FieldType::kName,
                               .unit = "bytes",
                               .meaning = "Only this model's prefixes; empty: those of all models.",
                               .max = 256}),
    row(&CacheRequest::names,
        {.name = "names",
         .type = FieldType::kTextList,
         .unit = "bytes",
         .meaning = "Names of prefixes, as `ls` shows them; for `why` a request's id.",
         .min = 1,
         .max = 64,
         .max_items = 64}),
    row(&CacheRequest::ttl_s, {.name = "ttl_s",
                               .type = FieldType::kInteger,
                               .unit = "s",
                               .meaning = "`pin`: how long.",
                               .min = 1,
                               .max = kMonthS}),
    row(&CacheRequest::all,
        {.name = "all",
         .type = FieldType::kBool,
         .meaning = "`rm`: all of the caller's prefixes, without names. From an administrator, "
                    "with every `op`: those of every owner."}),
    row(&CacheRequest::wipe, {.name = "wipe",
                              .type = FieldType::kBool,
                              .meaning = "`rm`: overwrite the removed bytes in the files."}),
    row(&CacheRequest::show_text, {.name = "show_text",
                                   .type = FieldType::kBool,
                                   .meaning = "`ls`: also the first words of each prefix."}),
    row(&CacheRequest::as_json, {.name = "as_json",
                                 .type = FieldType::kBool,
                                 .meaning = "`ls`, `stats`: answer in JSON."})};

template <>
inline constexpr auto kRowsOf<AttachRequest> = std::tuple{
    row(&AttachRequest::id, kId),
    row(&AttachRequest::from, {.name = "from",
                               .type = FieldType::kInteger,
                               .unit = "tokens",
                               .meaning = "Replay starts at the delta that holds this token of a "
                                          "sample, as far as the text is still stored.",
                               .max = kTokens})};

template <>
inline constexpr auto kRowsOf<ForkRequest> = std::tuple{
    row(&ForkRequest::n, kN),
    row(&ForkRequest::seed, kSeed),
    row(&ForkRequest::detach, kDetach),
    row(&ForkRequest::id, kId),
    row(&ForkRequest::sample, {.name = "sample",
                               .type = FieldType::kInteger,
                               .meaning = "Which of its samples to continue.",
                               .max = 15}),
    row(&ForkRequest::from,
        {.name = "from",
         .type = FieldType::kInteger,
         .unit = "tokens",
         .meaning = "Continue after this many tokens of that sample; -1: after all it has.",
         .min = -1,
         .max = kTokens}),
    row(&ForkRequest::max_tokens,
        {.name = "max_tokens",
         .type = FieldType::kInteger,
         .unit = "tokens",
         .meaning = "At most this many tokens per sample; 0: as many as the request had left.",
         .max = kTokens})};

template <>
inline constexpr auto kRowsOf<EmbedRequest> =
    std::tuple{row(&EmbedRequest::model, kModel),
               row(&EmbedRequest::texts, {.name = "texts",
                                          .type = FieldType::kTextList,
                                          .unit = "bytes",
                                          .meaning = "Texts, one vector for each; this or `ids`.",
                                          .max = kTextBytes,
                                          .min_items = 1,
                                          .max_items = 2048}),
               row(&EmbedRequest::ids, {.name = "ids",
                                        .type = FieldType::kIdLists,
                                        .unit = "tokens",
                                        .meaning = "The same as token ids, used exactly as given.",
                                        .max = kLastId,
                                        .min_items = 1,
                                        .max_items = 2048}),
               row(&EmbedRequest::query,
                   {.name = "query",
                    .type = FieldType::kText,
                    .unit = "bytes",
                    .meaning = "With `texts`, for a model that ranks: instead of vectors, a score "
                               "for each text of how well it answers this.",
                    .max = kTextBytes}),
               row(&EmbedRequest::pooling,
                   {.name = "pooling",
                    .type = FieldType::kChoice,
                    .meaning = "How token vectors become one: `auto`, as in the model's file; "
                               "`mean`; `cls`, the first token's; `last`.",
                    .choices = kPoolings}),
               row(&EmbedRequest::normalize, {.name = "normalize",
                                              .type = FieldType::kBool,
                                              .meaning = "Scale each vector to length 1, and "
                                                         "each score to 0 to 1."})};

template <>
inline constexpr auto kRowsOf<RecordRequest> = std::tuple{row(
    &RecordRequest::text,
    {
        .name = "text",
        .type = FieldType::kBool,
        .meaning = "Send the requests whole, with a digest of each answer. False: without prompts, "
                   "messages, tools, grammars, stop strings and names.",
    })};

}  // namespace request_fields

}  // namespace hearth::ipc
