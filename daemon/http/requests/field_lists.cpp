#include "daemon/http/requests/field_lists.h"

#include <array>

namespace hearth::http {
namespace {

constexpr ApiSet kCompletions = set_of(Api::kCompletions);
constexpr ApiSet kChat = set_of(Api::kChat);
constexpr ApiSet kResponses = set_of(Api::kResponses);
constexpr ApiSet kMessages = set_of(Api::kMessages);
constexpr ApiSet kOpenAi = kCompletions | kChat | kResponses;
constexpr ApiSet kGuided = kResponses | kMessages;
constexpr ApiSet kTwo = kCompletions | kChat;
constexpr ApiSet kAll = kOpenAi | kMessages;
constexpr ApiSet kOllama = set_of(Api::kOllamaGenerate) | set_of(Api::kOllamaChat);

constexpr auto kIgnored = std::to_array<IgnoredField>({
    {"user", Accepts::kText, kAll | kEmbeddingsApi, "names an end user"},
    {"safety_identifier", Accepts::kText, kOpenAi | kEmbeddingsApi, "names an end user"},
    {"metadata", Accepts::kObject, kAll | kEmbeddingsApi, "belongs to the client"},
    {"service_tier", Accepts::kText, kAll | kEmbeddingsApi, "there is one tier"},
    {"store", Accepts::kFalse, kTwo | kMessages, "answers of this API are not kept"},
    {"verbosity", Accepts::kText, kAll, "models here have no such switch"},
    {"prompt_cache_key", Accepts::kText, kOpenAi, "prefixes are found by their content"},
    {"cache_prompt", Accepts::kFlag, kAll, "prefixes are cached by `cache`"},
    {"background", Accepts::kFalse, kResponses, "as it is anyway"},
    {"continue_final_message", Accepts::kFalse, kChat, "as it is anyway"},
    {"add_generation_prompt", Accepts::kTrue, kChat, "as it is anyway"},
    {"skip_special_tokens", Accepts::kTrue, kTwo, "as it is anyway"},
    {"spaces_between_special_tokens", Accepts::kFlag, kTwo, "the text has no special tokens"},
    {"include_stop_str_in_output", Accepts::kFalse, kTwo, "as it is anyway"},
    {"use_beam_search", Accepts::kFalse, kTwo, "as it is anyway"},
    {"timings_per_token", Accepts::kFalse, kTwo, "as it is anyway"},
    {"return_progress", Accepts::kFalse, kTwo, "as it is anyway"},
    {"no_stop_trim", Accepts::kFalse, kTwo, "as it is anyway"},
    {"return_hidden_states", Accepts::kFalse, kTwo, "as it is anyway"},
    {"separate_reasoning", Accepts::kTrue, kChat, "as it is anyway"},
    {"stream_reasoning", Accepts::kTrue, kChat, "as it is anyway"},
    {"anthropic_version", Accepts::kText, kMessages, "there is one version"},
    {"anthropic_beta", Accepts::kAny, kMessages, "each feature has a parameter of its own"},
    {"diagnostics", Accepts::kObject, kMessages, "`hearth cache why` explains misses"},
    {"inference_geo", Accepts::kText, kMessages, "there is one place"},
    {"speed", Accepts::kText, kMessages, "there is one speed"},
    {"billing_policy", Accepts::kObject, kMessages, "nothing is billed"},
    {"truncate", Accepts::kFlag, kOllama, "nothing is truncated; what does not fit is refused"},
    {"shift", Accepts::kFlag, kOllama, "an answer ends where the context does"},
});

constexpr auto kNested = std::to_array<NestedField>({
    {"cache_control.scope", "`cache_share` shares prefixes"},
    {"text.verbosity", "models here have no such switch"},
    {"reasoning.summary", "all of the reasoning is returned"},
    {"reasoning.generate_summary", "all of the reasoning is returned"},
    {"thinking.display", "all of the reasoning is returned"},
    {"thinking.signature", "absent, or of another server or model: its thinking is left out"},
    {"input.encrypted_content", "of another model: this reasoning is left out"},
    {"redacted_thinking", "only the server that made it can read it"},
    {"parsed", "a client's library made it of the text next to it"},
    {"parsed_arguments", "the same, of a call's arguments"},
    {"parsed_output", "the same, of an answer that follows a schema"},
    {"output_config.task_budget", "one answer is made at a time"},
    {"context_management.edits", "all reasoning is kept, as the request asks"},
    {"tools.input_examples", "templates have no place for them"},
    {"tools.eager_input_streaming", "arguments are streamed as they are generated"},
    {"options.*",
     "options of Ollama about loading and speed, such as `num_ctx`: the configuration sets them"},
    {"tool_result.is_error", "templates have no place for it; the content conveys it"},
});

constexpr std::string_view kPenalty = "/v1/chat/completions has repetition_penalty";

constexpr auto kForeign = std::to_array<ForeignField>({
    {"repeat_penalty", "repetition_penalty", true, kTwo},
    {"repeat_last_n", "penalty_window", true, kTwo},
    {"typ_p", "typical_p", true, kTwo},
    {"stop_token_ids", "stop_ids", true, kTwo},
    {"num_predict", "max_tokens", true, kTwo | kMessages},
    {"n_predict", "max_tokens", true, kTwo | kMessages},
    {"thinking_budget", "reasoning_budget", true, kAll},
    {"thinking_token_budget", "reasoning_budget", true, kAll},
    {"guided_json", "json_schema", true, kTwo},
    {"guided_grammar", "grammar", true, kTwo},
    {"guided_regex", "regex", true, kTwo},
    {"guided_decoding_backend", "there is one; leave it out", false, kTwo},
    {"max_completion_tokens", "use max_tokens", false, kCompletions | kMessages},
    {"max_tokens", "use max_output_tokens", false, kResponses},
    {"max_completion_tokens", "use max_output_tokens", false, kResponses},
    {"num_predict", "use max_output_tokens", false, kResponses},
    {"n_predict", "use max_output_tokens", false, kResponses},
    {"repeat_penalty", kPenalty, false, kGuided},
    {"repetition_penalty", kPenalty, false, kGuided},
    {"max_output_tokens", "use max_tokens", false, kTwo | kMessages},
    {"stop", "use stop_sequences", false, kMessages},
    {"stop", "/v1/chat/completions has stop", false, kResponses},
    {"stop_sequences", "/v1/chat/completions has stop", false, kResponses},
    {"stop_sequences", "use stop", false, kTwo},
    {"prompt", "use messages", false, kChat | kMessages},
    {"prompt", "use input", false, kResponses},
    {"input", "use messages", false, kChat | kMessages},
    {"messages", "use input", false, kResponses},
    {"messages", "use /v1/chat/completions", false, kCompletions},
    {"system", "use a message with the role system", false, kChat},
    {"system", "use instructions", false, kResponses},
    {"response_format", "use text.format", false, kResponses},
    {"json_schema", "use text.format", false, kResponses},
    {"guided_json", "use text.format", false, kResponses},
    {"structured_outputs", "use text.format", false, kResponses},
    {"response_format", "use output_config.format", false, kMessages},
    {"json_schema", "use output_config.format", false, kMessages},
    {"guided_json", "use output_config.format", false, kMessages},
    {"structured_outputs", "use output_config.format", false, kMessages},
    {"think", "use reasoning_effort or enable_thinking", false, kChat},
    {"think", "use reasoning", false, kResponses},
    {"think", "use thinking", false, kMessages},
    {"format", "use response_format", false, kChat},
    {"functions", "use tools", false, kChat},
    {"function_call", "use tool_choice", false, kChat},
    {"options", "its members stand in the request itself", false, kAll},
    {"num_ctx", "context_length of the configuration sets it", false, kAll},
    {"keep_alive", "residency.keep_alive_ms of the configuration sets it", false, kAll},
    {"mirostat", "use temperature, top_p, min_p or typical_p", false, kTwo},
    {"tfs_z", "use temperature, top_p, min_p or typical_p", false, kTwo},
    {"samplers", "the order is temperature, top_k, top_p, min_p, typical_p", false, kTwo},
    {"n_probs", "use logprobs", false, kTwo},
    {"max_tokens", "use options.num_predict", false, kOllama},
    {"num_predict", "use options.num_predict", false, kOllama},
    {"temperature", "use options.temperature", false, kOllama},
    {"top_p", "use options.top_p", false, kOllama},
    {"top_k", "use options.top_k", false, kOllama},
    {"seed", "use options.seed", false, kOllama},
    {"stop", "use options.stop", false, kOllama},
    {"response_format", "use format", false, kOllama},
    {"reasoning_effort", "use think", false, kOllama},
    {"messages", "use /api/chat", false, set_of(Api::kOllamaGenerate)},
    {"prompt", "use messages, or /api/generate", false, set_of(Api::kOllamaChat)},
});

bool accepted(const Json& value, Accepts accepts) {
  switch (accepts) {
    case Accepts::kAny: return true;
    case Accepts::kText: return value.is_string();
    case Accepts::kFlag: return value.is_boolean();
    case Accepts::kObject: return value.is_object();
    case Accepts::kTrue: return value == true;
    case Accepts::kFalse: return value == false;
  }
  return false;
}

}  // namespace

std::span<const IgnoredField> ignored_fields() { return kIgnored; }
std::span<const NestedField> nested_fields() { return kNested; }
std::span<const ForeignField> foreign_fields() { return kForeign; }

std::string_view accepted_values(Accepts accepts) {
  switch (accepts) {
    case Accepts::kAny: return "any value";
    case Accepts::kText: return "a text";
    case Accepts::kFlag: return "true or false";
    case Accepts::kObject: return "an object";
    case Accepts::kTrue: return "true";
    case Accepts::kFalse: return "false";
  }
  return "";
}

void take_ignored(Members& in, ApiSet apis) {
  for (const IgnoredField& field : kIgnored) {
    if ((field.apis & apis) == 0) continue;
    const Json* const value = in.take(field.name);
    if (value == nullptr) continue;
    if (accepted(*value, field.accepts)) {
      in.ignore(field.name);
    } else if (field.accepts == Accepts::kTrue || field.accepts == Accepts::kFalse) {
      in.unsupported(field.name,
                     fmt::format("only {} is supported", accepted_values(field.accepts)));
    } else {
      in.wrong(field.name, *value, accepted_values(field.accepts));
    }
  }
}

void take_ignored_of_embeddings(Members& in) { take_ignored(in, kEmbeddingsApi); }

Result<void> rename_foreign(Json& body, ApiSet api) {
  for (const ForeignField& field : kForeign) {
    if ((field.apis & api) == 0) continue;
    const auto found = body.find(field.theirs);
    if (found == body.end() || found->is_null()) continue;
    const std::string theirs(field.theirs), ours(field.ours);
    if (!field.renamed) {
      return Error::unknown_field(
          fmt::format("{}: is not a parameter of this API; {}", theirs, ours), theirs);
    }
    Json& to = body[ours];
    if (!to.is_null()) {
      return Error::invalid(fmt::format("{}: met both it and {}, want one", theirs, ours), theirs);
    }
    to = std::move(*body.find(field.theirs));
    body.erase(theirs);
  }
  return {};
}

}  // namespace hearth::http
