#include "daemon/broker/remote/remote_request.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "daemon/http/requests/request_members.h"
#include "ipc/schema/events.h"
#include "ipc/wire/json.h"

namespace hearth::broker {
namespace {

using ipc::Json;

constexpr std::string_view kAnyObject = R"({"type":"object"})";

Error cannot(std::string_view field, std::string_view why = "has no place in OpenAI's API") {
  return Error::unsupported(fmt::format("{}: {}", field, why), std::string(field));
}

/// 0.8 and not 0.800000011920929.
double exact(float value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  double out = value;
  std::from_chars(text, end, out);
  return out;
}

/// The effort that an API's request had, if the settings of its reasoning came from that alone.
/// "": the request has none; nothing: they cannot be expressed.
std::optional<std::string> effort_of(const ipc::GenerateRequest& request) {
  const bool bare = request.template_kwargs.empty();
  if (bare && request.reasoning_budget == 0) {
    if (request.reasoning == "auto") return "";
    if (request.reasoning == "off") return "none";
  }
  for (const http::Effort& effort : http::efforts()) {
    const std::string text = fmt::format(R"({{"reasoning_effort":"{}"}})", effort.name);
    if (request.template_kwargs.text != text || request.reasoning == "off") continue;
    const bool bounded = request.reasoning_budget == effort.budget;
    return bounded ? std::optional(std::string(effort.name)) : std::nullopt;
  }
  return std::nullopt;
}

/// Removes what is hearth's own from a message. kUnsupported: it has members of other templates.
Result<void> carry_message(Json& message) {
  constexpr std::array kKnown = {"role",       "content",      "name",
                                 "tool_calls", "tool_call_id", "reasoning_content"};
  // The remote's model is another one than that which reasoned.
  if (message.contains(ipc::kReasoningOf)) message.erase("reasoning_content");
  for (const char* ours : {ipc::kReasoningOf, "cache_keep_s", "cache_keep_bytes"}) {
    message.erase(ours);
  }
  for (const auto& [key, value] : message.items()) {
    if (std::ranges::find(kKnown, key) == kKnown.end()) {
      return cannot("messages", fmt::format("a message has {}, which is not in OpenAI's API",
                                            ipc::printable(key)));
    }
  }
  const auto calls = message.find("tool_calls");
  if (calls == message.end()) return {};
  if (!calls->is_array()) return cannot("messages", "tool_calls is not a list");
  for (Json& call : *calls) {
    const auto function = call.is_object() ? call.find("function") : call.end();
    if (!call.is_object() || function == call.end() || !function->is_object()) {
      return cannot("messages", "a call is not one of a function");
    }
    Json& arguments = (*function)["arguments"];
    if (!arguments.is_string()) arguments = ipc::dump_json(arguments);
  }
  return {};
}

Result<void> carry_tool(Json& tool) {
  for (const char* ours : {"cache_keep_s", "cache_keep_bytes"}) tool.erase(ours);
  const auto function = tool.find("function");
  if (function == tool.end() || !function->is_object()) {
    return cannot("tools", "one of them is not a function");
  }
  // A grammar for the input of a custom tool stands where JSON schema has no such keyword.
  const Json* const input = [&]() -> const Json* {
    const auto parameters = function->find("parameters");
    if (parameters == function->end() || !parameters->is_object()) return nullptr;
    const auto properties = parameters->find("properties");
    if (properties == parameters->end() || !properties->is_object()) return nullptr;
    const auto found = properties->find(http::kCustomParameter);
    return found == properties->end() || !found->is_object() ? nullptr : &*found;
  }();
  if (input != nullptr && input->contains("lark")) {
    return cannot("tools", "a custom tool has a grammar, which only this machine can enforce");
  }
  return {};
}

Result<Json> list_of(std::string_view field, const ipc::JsonText& text) {
  Json list = Json::parse(text.text, nullptr, /*allow_exceptions=*/false);
  if (!list.is_array()) return cannot(field, "is not a list");
  for (const Json& each : list) {
    if (!each.is_object()) return cannot(field, "one of them is not an object");
  }
  return list;
}

Result<void> add_conversation(const ipc::GenerateRequest& request, Json& body) {
  if (request.messages.empty()) {
    body["messages"] = Json::array({{{"role", "user"}, {"content", request.prompt}}});
  } else {
    HEARTH_ASSIGN_OR_RETURN(ipc::LargeJson messages, list_of("messages", request.messages));
    for (Json& message : messages) HEARTH_TRY(carry_message(message));
    body["messages"].swap(messages);
  }
  if (!request.tools.empty()) {
    HEARTH_ASSIGN_OR_RETURN(ipc::LargeJson tools, list_of("tools", request.tools));
    for (Json& tool : tools) HEARTH_TRY(carry_tool(tool));
    body["tools"].swap(tools);
    const std::string& choice = request.tool_choice;
    if (choice == "none" || choice == "required") {
      body["tool_choice"] = choice;
    } else if (choice != "auto") {
      body["tool_choice"] = {{"type", "function"}, {"function", {{"name", choice}}}};
    }
    if (!request.parallel_tool_calls) body["parallel_tool_calls"] = false;
  }
  if (request.json_schema == kAnyObject) {
    body["response_format"] = {{"type", "json_object"}};
  } else if (!request.json_schema.empty()) {
    Json schema = Json::parse(request.json_schema, nullptr, /*allow_exceptions=*/false);
    if (!schema.is_object()) return cannot("json_schema", "is not an object");
    body["response_format"] = {
        {"type", "json_schema"},
        {"json_schema",
         {{"name", "answer"}, {"strict", !request.relax_schema}, {"schema", std::move(schema)}}}};
  }
  if (const auto effort = effort_of(request); effort && !effort->empty()) {
    body["reasoning_effort"] = *effort;
  }
  // Without a bound, as many as fit.
  if (request.max_tokens > 0) body["max_completion_tokens"] = request.max_tokens;
  return {};
}

bool is_chat(const ipc::GenerateRequest& request) {
  return !request.messages.empty() || request.prompt_as == "message";
}

}  // namespace

Result<void> check_portable(const ipc::GenerateRequest& request) {
  const ipc::GenerateRequest plain;
  const bool chat = is_chat(request);
  // Of penalties those of the whole text alone are in OpenAI's API.
  const bool penalties = request.presence_penalty != 0 || request.frequency_penalty != 0;
  const std::pair<bool, std::string_view> refused[] = {
      {!request.prompt_ids.empty(), "prompt_ids"},
      {request.raw, "raw"},
      {request.parse_special, "parse_special"},
      {request.tool_form != plain.tool_form, "tool_form"},
      {!effort_of(request), request.template_kwargs.empty() ? "reasoning" : "template_kwargs"},
      {request.min_tokens > 0, "min_tokens"},
      {request.steps > 0, "steps"},
      {request.block_length > 0, "block_length"},
      {request.remasking != plain.remasking, "remasking"},
      {request.top_k.has_value(), "top_k"},
      {request.min_p.has_value(), "min_p"},
      {request.typical_p != plain.typical_p, "typical_p"},
      {request.repetition_penalty.has_value(), "repetition_penalty"},
      {penalties ? request.penalty_window != -1 : request.penalty_window.value_or(-1) != -1,
       "penalty_window"},
      {!request.logit_bias.empty(), "logit_bias"},
      {!request.stop_ids.empty(), "stop_ids"},
      {request.ignore_eos, "ignore_eos"},
      {request.logprobs >= 0, "logprobs"},
      {request.prompt_logprobs, "prompt_logprobs"},
      {request.draft != "auto" && request.draft != "none", "draft"},
      {request.cache != plain.cache, "cache"},
      {!request.adapter.empty(), "adapter"},
      {!request.grammar.empty(), "grammar"},
      {!request.regex.empty(), "regex"},
      {!chat && !request.json_schema.empty(), "json_schema"},
      {!chat && request.max_tokens == 0, "max_tokens"},
      {chat && !request.suffix.empty(), "suffix"},
  };
  for (const auto& [is, field] : refused) {
    if (is) return cannot(field);
  }
  return {};
}

Result<RemoteRequest> make_remote_request(const ipc::GenerateRequest& request,
                                          const std::string& model, bool with_seed) {
  RemoteRequest out{.chat = is_chat(request), .samples = request.n};
  ipc::LargeJson body(Json{{"model", model}});
  if (out.chat) {
    HEARTH_TRY(add_conversation(request, body));
  } else {
    body["prompt"] = request.prompt;
    if (!request.suffix.empty()) body["suffix"] = request.suffix;
    body["max_tokens"] = request.max_tokens;
  }
  if (request.n > 1) body["n"] = request.n;
  if (request.temperature) body["temperature"] = exact(*request.temperature);
  if (request.top_p) body["top_p"] = exact(*request.top_p);
  if (request.presence_penalty != 0) body["presence_penalty"] = exact(request.presence_penalty);
  if (request.frequency_penalty != 0) body["frequency_penalty"] = exact(request.frequency_penalty);
  if (with_seed && request.seed) body["seed"] = *request.seed;
  if (!request.stop.empty()) body["stop"] = request.stop;
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  out.body = ipc::dump_json(body);
  return out;
}

}  // namespace hearth::broker
