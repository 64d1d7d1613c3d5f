#include "daemon/http/answers/answer_parts.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace hearth::http {
std::string finish_reason(std::string_view reason) {
  if (reason == "cancelled" || reason == "deadline") return {};
  return reason == "length" || reason == "tool_calls" ? std::string(reason) : "stop";
}

namespace {
/// Adds what is not in the prompt although the request has it, and the remote that counted.
Json with_notes(const Call& call, const ipc::Usage& counts, Json usage) {
  if (call.volatile_lines > 0) usage["volatile_lines"] = call.volatile_lines;
  if (counts.remote) usage["remote"] = *counts.remote;
  return usage;
}
}  // namespace

Json usage_json(const Call& call, const ipc::Usage& usage,
                const ipc::SpeculationStats& speculation) {
  Json out =
      with_notes(call, usage,
                 {{"prompt_tokens", usage.prompt_tokens},
                  {"completion_tokens", usage.output_tokens},
                  {"total_tokens", usage.prompt_tokens + usage.output_tokens},
                  {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
                  {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}});
  if (call.request.prediction.empty()) return out;
  uint64_t accepted = 0, rejected = 0;
  for (const ipc::ProposerStats& each : speculation.by) {
    if (each.name != ipc::kPredictionName) continue;
    accepted += each.accepted_tokens;
    rejected += each.drafted_tokens - each.accepted_tokens;
  }
  out["completion_tokens_details"]["accepted_prediction_tokens"] = accepted;
  out["completion_tokens_details"]["rejected_prediction_tokens"] = rejected;
  return out;
}

Json chat_message(const Sample& sample) {
  Json out = {{"role", "assistant"}, {"content", sample.text}, {"refusal", nullptr}};
  if (!sample.reasoning.empty()) out["reasoning_content"] = sample.reasoning;
  if (sample.calls.empty()) return out;
  if (sample.text.empty()) out["content"] = nullptr;
  Json calls = Json::array();
  for (const MadeCall& each : sample.calls) {
    if (each.custom) {
      calls.push_back({{"id", each.call.id},
                       {"type", "custom"},
                       {"custom", {{"name", each.call.name}, {"input", custom_input(each)}}}});
      continue;
    }
    calls.push_back({{"id", each.call.id},
                     {"type", "function"},
                     {"function", {{"name", each.call.name}, {"arguments", each.arguments}}}});
  }
  out["tool_calls"] = std::move(calls);
  return out;
}

Json response_message(const Head& head, std::string_view text, std::string_view status) {
  return {
      {"type", "message"},
      {"id", "msg_" + head.id.substr(5)},
      {"status", status},
      {"role", "assistant"},
      {"content",
       Json::array({{{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}}})}};
}

Json response_reasoning(const Call& call, const Head& head, std::string_view text,
                        std::string_view status) {
  Json out = {{"type", "reasoning"},
              {"id", "rs_" + head.id.substr(5)},
              {"status", status},
              {"summary", Json::array()},
              {"content", Json::array({{{"type", "reasoning_text"}, {"text", text}}})}};
  if (call.seal && status != "in_progress") {
    const std::string sealed = call.seal->seal(head.fingerprint, text);
    out["encrypted_content"] = sealed.empty() ? Json() : Json(sealed);
  }
  return out;
}

Json response_call(const Head& head, const MadeCall& call, std::string_view status) {
  if (call.custom) {
    return {{"type", "custom_tool_call"},
            {"id", fmt::format("ctc_{}_{}", head.id.substr(5), call.call.index)},
            {"call_id", call.call.id},
            {"name", call.call.name},
            {"input", custom_input(call)},
            {"status", status}};
  }
  return {{"type", "function_call"},
          {"id", fmt::format("fc_{}_{}", head.id.substr(5), call.call.index)},
          {"call_id", call.call.id},
          {"name", call.call.name},
          {"arguments", call.arguments},
          {"status", status}};
}

namespace {

// The tools in this API's format, which omits the object around a function's members.
Json response_tools(const Call& call) {
  Json out = Json::array();
  const Json tools = Json::parse(call.request.tools.text, nullptr, false);
  if (!tools.is_array()) return out;
  for (const Json& tool : tools) {
    const std::string name = tool["function"]["name"];
    const auto custom = std::ranges::find(call.custom_tools, name, &CustomTool::name);
    if (custom != call.custom_tools.end()) {
      out.push_back(Json::parse(custom->sent, nullptr, false));
      continue;
    }
    Json flat = {{"type", "function"}, {"strict", false}};
    for (const auto& [key, value] : tool["function"].items()) flat[key] = value;
    if (!flat.contains("parameters")) flat["parameters"] = nullptr;
    out.push_back(std::move(flat));
  }
  return out;
}

Json response_tool_choice(const Call& call) {
  const std::string& choice = call.request.tool_choice;
  if (call.request.tools.empty()) return "none";
  if (choice == "auto" || choice == "none" || choice == "required") return choice;
  return {{"type", call.is_custom(choice) ? "custom" : "function"}, {"name", choice}};
}

}  // namespace

Json response_json(const Call& call, const Head& head, const Sample* sample,
                   const ipc::DoneEvent* done) {
  const bool cut = sample != nullptr && sample->reason == "length";
  const char* status = done == nullptr ? "in_progress" : cut ? "incomplete" : "completed";
  Json out = {{"id", head.id},
              {"object", "response"},
              {"created_at", head.created_s},
              {"status", status},
              {"error", nullptr},
              {"incomplete_details", nullptr},
              {"instructions", call.instructions.empty() ? Json() : Json(call.instructions)},
              {"metadata", Json::object()},
              {"model", head.model},
              {"output", Json::array()},
              {"parallel_tool_calls", call.request.parallel_tool_calls},
              {"temperature", nullptr},
              {"tool_choice", response_tool_choice(call)},
              {"tools", response_tools(call)},
              {"top_p", nullptr},
              {"max_output_tokens", nullptr},
              {"previous_response_id",
               call.previous_response_id.empty() ? Json() : Json(call.previous_response_id)},
              {"store", call.store},
              {"truncation", "disabled"},
              {"usage", nullptr}};
  // Null means the model's own default (/v1/models/ID).
  if (call.request.temperature) out["temperature"] = *call.request.temperature;
  if (call.request.top_p) out["top_p"] = *call.request.top_p;
  if (call.request.max_tokens > 0) out["max_output_tokens"] = call.request.max_tokens;
  if (done == nullptr) return out;
  if (cut) out["incomplete_details"] = {{"reason", "max_output_tokens"}};
  Json output = Json::array();
  if (!sample->reasoning.empty()) {
    output.push_back(response_reasoning(call, head, sample->reasoning, "completed"));
  }
  if (!sample->text.empty() || (sample->calls.empty() && sample->reasoning.empty())) {
    output.push_back(response_message(head, sample->text, "completed"));
  }
  for (const MadeCall& each : sample->calls) {
    output.push_back(response_call(head, each, "completed"));
  }
  // Only the last item can be truncated.
  if (cut) output.back()["status"] = "incomplete";
  out["output"] = std::move(output);
  const ipc::Usage& usage = done->usage;
  out["usage"] =
      with_notes(call, usage,
                 {{"input_tokens", usage.prompt_tokens},
                  {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
                  {"output_tokens", usage.output_tokens},
                  {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
                  {"total_tokens", usage.prompt_tokens + usage.output_tokens}});
  return out;
}

KeptResponse kept_response(const Call& call, const Head& head, Json response) {
  KeptResponse kept{.id = head.id,
                    .previous_id = call.previous_response_id,
                    .created_s = head.created_s,
                    .head = {},
                    .output = ipc::dump_json(response["output"]),
                    .input = {}};
  response.erase("output");
  kept.head = ipc::dump_json(response);
  return kept;
}

Json stop_reason(const Sample& sample) {
  if (!sample.stop.empty()) return "stop_sequence";
  if (sample.reason == "tool_calls") return "tool_use";
  return sample.reason == "length" ? "max_tokens" : "end_turn";
}
Json stop_sequence(const Sample& sample) {
  return sample.stop.empty() ? Json() : Json(sample.stop);
}

/// Bounds on the arguments of a call that a model made. Its user chooses what it writes.
constexpr ipc::JsonLimits kAnsweredLimits{
    .max_depth = 64, .max_object_keys = 4096, .last_key_applies = true};

std::string custom_input(const MadeCall& call) {
  const Json object = arguments_object(call.arguments);
  const auto input = object.find(kCustomParameter);
  return input != object.end() && input->is_string() ? input->get<std::string>() : "";
}

Json arguments_object(const std::string& arguments) {
  Result<Json> object = ipc::parse_json_object(arguments, kAnsweredLimits);
  return object ? std::move(*object) : Json::object();
}

std::string thinking_signature(const Call& call, const Head& head, std::string_view text) {
  return call.seal ? call.seal->sign(head.fingerprint, text) : "";
}

Json anthropic_content(const Call& call, const Head& head, const Sample& sample) {
  Json out = Json::array();
  if (!sample.reasoning.empty()) {
    out.push_back({{"type", "thinking"},
                   {"thinking", sample.reasoning},
                   {"signature", thinking_signature(call, head, sample.reasoning)}});
  }
  const bool nothing = sample.reasoning.empty() && sample.calls.empty();
  if (!sample.text.empty() || nothing) out.push_back({{"type", "text"}, {"text", sample.text}});
  for (const MadeCall& each : sample.calls) {
    out.push_back({{"type", "tool_use"},
                   {"id", each.call.id},
                   {"name", each.call.name},
                   {"input", arguments_object(each.arguments)}});
  }
  return out;
}
Json anthropic_usage(const Call& call, const ipc::Usage& usage) {
  return with_notes(call, usage,
                    {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
                     {"cache_creation_input_tokens", 0},
                     {"cache_read_input_tokens", usage.cached_tokens},
                     {"output_tokens", usage.output_tokens},
                     {"output_tokens_details", {{"thinking_tokens", usage.reasoning_tokens}}}});
}
std::string_view request_id_of(const Head& head) {
  return std::string_view(head.id).substr(head.id.find('_') + 1);
}

void append_event(std::string_view type, const Json& data, std::string* out) {
  *out += fmt::format("event: {}\ndata: {}\n\n", type, ipc::dump_json(data));
}

}  // namespace hearth::http
