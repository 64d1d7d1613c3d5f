// POST /v1/chat/completions

#include "daemon/http/requests/field_lists.h"
#include "daemon/http/requests/volatile_lines.h"

namespace hearth::http {
namespace {

// {"id":...,"type":"function","function":{"name":...,"arguments":"{}"}}
Json take_call(Members& in, Json& call, const std::string& path, size_t* value_bytes) {
  Members from(call, path + ".");
  const std::string id = from.text("id").value_or("");
  const std::string type = from.text("type").value_or("function");
  if (type != "function" && type != "custom") {
    from.unsupported("type", "only function and custom are supported");
  }
  Json* function = from.take(type == "custom" ? "custom" : "function");
  Json out;
  if (type == "custom" && function != nullptr && function->is_object()) {
    Members inner(*function, path + ".custom.");
    const auto name = inner.text("name");
    auto input = inner.text("input");
    if (!name) inner.invalid("name", "absent, want a string");
    Json arguments = {{kCustomParameter, std::move(input).value_or("")}};
    out = made_call(inner, "input", id, name.value_or(""), std::move(arguments), value_bytes);
    inner.check_unknown();
    in.join(inner);
  } else if (function == nullptr || !function->is_object()) {
    from.invalid("function", "absent, want an object");
  } else {
    Members inner(*function, path + ".function.");
    const auto name = inner.text("name");
    Json* arguments = inner.take("arguments");
    if (!name) inner.invalid("name", "absent, want a string");
    if (arguments != nullptr && !arguments->is_string() && !arguments->is_object()) {
      inner.wrong("arguments", *arguments, "the text of a JSON object");
    }
    out = made_call(inner, "arguments", id, name.value_or(""),
                    arguments == nullptr ? Json("{}") : std::move(*arguments), value_bytes);
    inner.take("index");  // where Ollama has it
    take_parsed(inner);
    inner.check_unknown();
    in.join(inner);
  }
  from.take("index");  // a member of a stream's deltas, which clients leave in
  from.check_unknown();
  in.join(from);
  return out;
}

/// The ids of calls in an API without them: nine digits, as some templates want. Results answer the
/// calls in their order.
class CallIds {
 public:
  void name_calls(Json& calls) {
    for (Json& call : calls) {
      if (call["id"] == "") call["id"] = fmt::format("{:09}", ++made_);
    }
  }
  std::string next_answered() { return fmt::format("{:09}", ++answered_); }

 private:
  int made_ = 0, answered_ = 0;
};

}  // namespace

void take_chat_messages(Members& in, Api api, Json& request) {
  Json* messages = in.take("messages");
  if (messages == nullptr) {
    return in.invalid("messages", "absent, want a list");
  }
  if (!messages->is_array() || messages->empty()) {
    return in.wrong("messages", *messages, "a list of messages");
  }
  Json out = Json::array();
  const bool ollama = api == Api::kOllamaChat;
  CallIds ids;
  size_t value_bytes = 0;  // of the arguments of all calls
  for (size_t i = 0; i < messages->size() && !in.failed(); ++i) {
    Json& from = (*messages)[i];
    const std::string path = fmt::format("messages[{}]", i);
    if (!from.is_object()) return in.wrong(path, from, "an object");
    Members message(from, path + ".");
    Json to = Json::object();
    std::string role = message.text("role").value_or("");
    if (role == "developer") role = "system";
    if (role != "system" && role != "user" && role != "assistant" && role != "tool") {
      message.invalid("role", "want system, developer, user, assistant or tool");
    }
    to["role"] = role;
    Kept kept;
    Json* calls = message.take("tool_calls");
    if (calls != nullptr && *calls == Json::array()) calls = nullptr;
    if (Json* content = message.take("content")) {
      if (auto text = text_of(*content, {"text", "refusal"}, path + ".content", in, &kept)) {
        to["content"] = *std::move(text);
      }
    } else if (role == "assistant") {
      to["content"] = "";
    } else {
      message.invalid("content", "absent, want a string");
    }
    if (calls != nullptr) {
      if (role != "assistant" || !calls->is_array()) {
        message.wrong("tool_calls", *calls, "a list, of an assistant's message");
      } else {
        Json list = Json::array();
        for (size_t k = 0; k < calls->size() && !in.failed(); ++k) {
          const std::string at = fmt::format("{}.tool_calls[{}]", path, k);
          if (!(*calls)[k].is_object()) return in.wrong(at, (*calls)[k], "an object");
          list.push_back(take_call(in, (*calls)[k], at, &value_bytes));
        }
        if (ollama) ids.name_calls(list);
        to["tool_calls"] = std::move(list);
      }
    }
    if (const auto id = message.text("tool_call_id")) to["tool_call_id"] = *id;
    if (const auto name = message.text("name")) to["name"] = *name;
    for (const char* name : {"reasoning", "reasoning_content", "thinking"}) {
      if (!ollama && name == std::string_view("thinking")) continue;
      if (auto reasoning = message.text(name)) to["reasoning_content"] = *std::move(reasoning);
    }
    if (ollama) {
      message.only("images", {Json::array()});
      if (const auto name = message.text("tool_name")) to["name"] = *name;
      if (role == "tool" && !to.contains("tool_call_id")) to["tool_call_id"] = ids.next_answered();
    }
    take_parsed(message);
    for (const char* absent : {"refusal", "audio"}) message.only(absent, {});
    message.only("annotations", {Json::array()});
    kept.add(take_cache_control(message), 0);
    message.check_unknown();
    in.join(message);
    kept.write_to(to);
    out.push_back(std::move(to));
  }
  request["messages"] = std::move(out);
}

namespace {

/// {"type": "content", "content": a text or text parts}
void take_prediction(Members& in, Json& request) {
  Json* const prediction = in.take("prediction");
  if (prediction == nullptr) return;
  if (!prediction->is_object()) return in.wrong("prediction", *prediction, "an object");
  Members inner(*prediction, "prediction.");
  if (inner.text("type").value_or("content") != "content") {
    inner.unsupported("type", "only content is supported");
  }
  if (Json* const content = inner.take("content")) {
    if (auto text = text_of(*content, {"text"}, "prediction.content", in)) {
      request["prediction"] = *std::move(text);
    }
  } else {
    inner.invalid("content", "absent, want a string");
  }
  inner.check_unknown();
  in.join(inner);
}

}  // namespace

Result<Call> parse_chat(Json& body, const PromptRules& rules) {
  Call call{.api = Api::kChat};
  ipc::LargeJson request(new_request());
  HEARTH_TRY(rename_foreign(body, set_of(call.api)));
  call.volatile_lines = leave_out_volatile_lines(rules, call.api, body);
  Members in(body);
  take_chat_messages(in, call.api, request);
  request["max_tokens"] = 0;
  request["clip_max_tokens"] = true;
  const bool old_name = in.take("max_tokens") != nullptr;
  if (old_name && in.take("max_completion_tokens") != nullptr) {
    in.invalid("max_tokens", "met both it and max_completion_tokens, want one");
  }
  const std::string_view most_name = old_name ? "max_tokens" : "max_completion_tokens";
  take_max_tokens(in, "max_tokens", request);
  take_max_tokens(in, "max_completion_tokens", request);
  take_sampling(in, request);
  take_stream(in, call);
  const Json* alternatives = in.take("top_logprobs");
  if (in.flag("logprobs", false)) {
    request["logprobs"] = alternatives == nullptr ? Json(0) : *alternatives;
  } else if (alternatives != nullptr) {
    in.invalid("top_logprobs", "met it without logprobs");
  }
  if (Json* format = in.take("response_format")) {
    take_format(in, "response_format", *format, true, request);
  }
  take_tools(in, ToolWords::kChat, request, &call.custom_tools);
  take_kept_prompt(in, request);
  take_retention(in, request);  // the longer of both
  in.pass("chat_template_kwargs", request, "template_kwargs");
  take_reasoning(in, request);
  take_prediction(in, request);
  in.only("modalities", {Json::array({"text"})});
  take_ignored(in, set_of(call.api));
  HEARTH_TRY(in.finish());
  call.ignored = in.ignored();
  call.about_reasoning = in.about_reasoning();
  HEARTH_ASSIGN_OR_RETURN(call.request,
                          decode(request, {{"max_tokens", most_name},
                                           {"logprobs", "top_logprobs"},
                                           {"json_schema", "response_format"},
                                           {"template_kwargs", "chat_template_kwargs"}}));
  return call;
}

}  // namespace hearth::http
