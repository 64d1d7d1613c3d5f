// POST /api/generate and /api/chat of Ollama's API

#include <array>

#include "daemon/http/requests/api_embeddings.h"
#include "daemon/http/requests/field_lists.h"
#include "daemon/http/requests/volatile_lines.h"

namespace hearth::http {
namespace {

struct Option {
  std::string_view theirs;
  std::string_view ours;
};
constexpr auto kOptions = std::to_array<Option>({
    {"temperature", "temperature"},
    {"top_k", "top_k"},
    {"top_p", "top_p"},
    {"min_p", "min_p"},
    {"typical_p", "typical_p"},
    {"repeat_penalty", "repetition_penalty"},
    {"repeat_last_n", "penalty_window"},
    {"presence_penalty", "presence_penalty"},
    {"frequency_penalty", "frequency_penalty"},
});
/// Those that choose how a model is loaded or how fast it computes.
constexpr auto kLoading = std::to_array<std::string_view>(
    {"num_ctx", "num_keep", "num_batch", "num_gpu", "main_gpu", "num_thread", "use_mmap",
     "use_mlock", "numa", "low_vram", "f16_kv", "vocab_only", "logits_all", "embedding_only"});

void take_options(Members& in, Json& request) {
  Json* const options = in.take("options");
  if (options == nullptr) return;
  if (!options->is_object()) return in.wrong("options", *options, "an object");
  Members inner(*options, "options.");
  for (const Option& option : kOptions) inner.pass(option.theirs, request, option.ours);
  if (Json* seed = inner.take("seed"); seed != nullptr && !is_negative(*seed, -1))
    request["seed"] = *seed;
  // -2 means as many as the context has room for, and -1 as many as it takes.
  if (const Json* most = inner.take("num_predict"); most != nullptr && !is_negative(*most, -2)) {
    if (*most == 0) inner.wrong("num_predict", *most, "an integer from 1, -1 or -2");
    if (!is_negative(*most, -1)) set_max_tokens(*most, request);
  }
  take_stop(inner, "stop", request);
  for (const std::string_view name : kLoading) {
    if (inner.take(name) != nullptr) inner.ignore("options.*");
  }
  if (const Json* mirostat = inner.take("mirostat"); mirostat != nullptr && *mirostat != 0) {
    inner.unsupported("mirostat", "only 0 is supported; use top_p or min_p");
  }
  inner.renamed("max_tokens", "options.num_predict");
  inner.renamed("repetition_penalty", "options.repeat_penalty");
  for (const char* name : {"mirostat_tau", "mirostat_eta"}) inner.take(name);  // unused at 0
  inner.only("tfs_z", {Json(1)});
  inner.only("penalize_newline", {Json(true)});
  inner.check_unknown();
  in.join(inner);
}

/// "json", or a schema.
void take_output_format(Members& in, Json& request) {
  const Json* const format = in.take("format");
  if (format == nullptr || *format == "") return;
  if (*format == "json") {
    request["json_schema"] = R"({"type":"object"})";
  } else if (format->is_object()) {
    request["json_schema"] = ipc::dump_json(*format);
  } else {
    in.wrong("format", *format, "json or a JSON schema");
  }
}

void take_logprobs(Members& in, Json& request) {
  const Json* const alternatives = in.take("top_logprobs");
  if (in.flag("logprobs", false)) {
    request["logprobs"] = alternatives == nullptr ? Json(0) : *alternatives;
  } else if (alternatives != nullptr && *alternatives != 0) {
    in.invalid("top_logprobs", "met it without logprobs");
  }
}

/// The prompt of /api/generate: a message of the user, after `system`; or with `raw` a text in
/// which control tokens may be written.
void take_generate_prompt(Members& in, Json& request, Call& call) {
  std::string prompt = in.text("prompt").value_or("");
  const std::string system = in.text("system").value_or("");
  const bool raw = in.flag("raw", false);
  const std::string suffix = in.text("suffix").value_or("");
  in.only("images", {Json::array()});
  if (const Json* context = in.take("context"); context != nullptr && *context != Json::array()) {
    in.unsupported("context", "is not supported; send the conversation to /api/chat");
  }
  if (const auto own = in.text("template"); own && !own->empty()) {
    in.unsupported("template", "is not supported; raw: true uses none, else the model's own");
  }
  call.loads = prompt.empty() && system.empty() && suffix.empty();
  if (!suffix.empty()) {
    if (!system.empty()) in.invalid("system", "met it with suffix, want text alone");
    request["prompt"] = std::move(prompt);
    request["suffix"] = suffix;
  } else if (raw) {
    if (!system.empty()) in.invalid("system", "met it with raw, want all of the text in prompt");
    request["prompt"] = std::move(prompt);
    request["parse_special"] = true;
  } else if (system.empty()) {
    request["prompt"] = std::move(prompt);
    request["prompt_as"] = "message";
  } else {
    request["messages"] = Json::array({{{"role", "system"}, {"content", system}},
                                       {{"role", "user"}, {"content", std::move(prompt)}}});
  }
}

/// A request without a prompt only loads its model.
void without_prompt(Json& request) {
  request.erase("messages");
  request["prompt"] = " ";
}

void take_ollama_model(Members& in, Json& request) {
  // The old name of the parameter in some of its calls.
  auto name = in.text("model");
  if (auto old_name = in.text("name"); !name) name = std::move(old_name);
  if (!name || name->empty()) return in.invalid("model", "absent, want a name");
  constexpr std::string_view kLatest = ":latest";
  if (name->ends_with(kLatest)) name->resize(name->size() - kLatest.size());
  request["model"] = *std::move(name);
}

}  // namespace

Result<Call> parse_ollama(Api api, Json& body, const PromptRules& rules) {
  Call call{.api = api};
  ipc::LargeJson request(new_request());
  HEARTH_TRY(rename_foreign(body, set_of(api)));
  call.volatile_lines = leave_out_volatile_lines(rules, api, body);
  Members in(body);
  request["max_tokens"] = 0;
  request["clip_max_tokens"] = true;
  take_ollama_model(in, request);
  in.pass("remote", request);
  in.pass("adapter", request);
  if (api == Api::kOllamaGenerate) {
    take_generate_prompt(in, request, call);
  } else {
    const Json* const messages = in.take("messages");
    call.loads = messages == nullptr || *messages == Json::array();
    if (!call.loads) take_chat_messages(in, api, request);
    take_tools(in, ToolWords::kChat, request, nullptr);
  }
  if (call.loads) without_prompt(request);
  call.keep_alive_ms = take_keep_alive(in);
  call.stream = in.flag("stream", true);
  take_output_format(in, request);
  take_think(in, request);
  take_options(in, request);
  take_logprobs(in, request);
  take_ignored(in, set_of(api));
  HEARTH_TRY(in.finish());
  call.ignored = in.ignored();
  call.about_reasoning = in.about_reasoning();
  std::vector<Renamed> renamed = {{"max_tokens", "options.num_predict"},
                                  {"seed", "options.seed"},
                                  {"stop", "options.stop"},
                                  {"logprobs", "top_logprobs"},
                                  {"json_schema", "format"}};
  std::vector<std::string> names;
  names.reserve(kOptions.size());  // the views stay valid
  for (const Option& option : kOptions) {
    names.push_back("options." + std::string(option.theirs));
    renamed.push_back({option.ours, names.back()});
  }
  HEARTH_ASSIGN_OR_RETURN(call.request, decode(request, renamed));
  return call;
}

Result<std::string> parse_ollama_name(std::string body) {
  HEARTH_ASSIGN_OR_RETURN(ipc::LargeJson object, parse_body_text(std::move(body)));
  Members in(object);
  Json out = Json::object();
  take_ollama_model(in, out);
  in.flag("verbose", false);  // all that is known is sent anyway
  HEARTH_TRY(in.finish());
  return out["model"].get<std::string>();
}

Result<EmbeddingsCall> parse_ollama_embed(bool legacy, std::string body) {
  HEARTH_ASSIGN_OR_RETURN(ipc::LargeJson object, parse_body_text(std::move(body)));
  EmbeddingsCall call;
  call.answer.ollama = legacy ? OllamaVectors::kOne : OllamaVectors::kList;
  ipc::LargeJson request(Json::object());
  request["verb"] = "embed";
  Members in(object);
  take_ollama_model(in, request);
  Json* const input = in.take(legacy ? "prompt" : "input");
  const std::string_view name = legacy ? "prompt" : "input";
  if (input == nullptr) {
    in.invalid(name, legacy ? "absent, want a text" : "absent, want a text or a list of texts");
  } else if (input->is_string()) {
    request["texts"] = Json::array({std::move(*input)});
  } else if (!legacy && input->is_array()) {
    request["texts"] = std::move(*input);
  } else {
    in.wrong(name, *input, legacy ? "a text" : "a text or a list of texts");
  }
  // The older call returns vectors as the model makes them.
  if (legacy) request["normalize"] = false;
  if (const Json* dimensions = in.take("dimensions")) {
    if (!dimensions->is_number_unsigned() || *dimensions == 0) {
      in.wrong("dimensions", *dimensions, "an integer from 1");
    } else {
      call.answer.dimensions = dimensions->get<uint64_t>();
    }
  }
  Json unused = Json::object();
  take_options(in, unused);
  call.keep_alive_ms = take_keep_alive(in);
  take_ignored(in, set_of(Api::kOllamaChat));
  HEARTH_TRY(in.finish());
  call.ignored = in.ignored();
  Result<ipc::ClientRequest> decoded = ipc::request_from_json(request);
  if (!decoded) {
    Error error = decoded.take_error();
    if (error.field == "texts") error.field = std::string(name);
    return error;
  }
  call.request = std::get<ipc::EmbedRequest>(std::move(*decoded));
  return call;
}

}  // namespace hearth::http
