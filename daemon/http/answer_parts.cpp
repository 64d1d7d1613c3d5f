#include "daemon/http/answer_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace hearth::http {
namespace {

constexpr std::string_view kBytesMark = "bytes:\\x";  // see ipc::TokenLogprobs

// The bytes that a token's text means.
Json bytes_of(std::string_view text) {
  Json bytes = Json::array();
  if (!text.starts_with(kBytesMark)) {
    for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
    return bytes;
  }
  text.remove_prefix(kBytesMark.size() - 2);
  while (text.size() >= 4) {
    unsigned value = 0;
    std::from_chars(text.data() + 2, text.data() + 4, value, 16);
    bytes.push_back(value);
    text.remove_prefix(4);
  }
  return bytes;
}

}  // namespace

std::string finish_reason(std::string_view reason) {
  return reason == "length" ? "length" : "stop";
}

Json usage_json(const ipc::Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.output_tokens},
          {"total_tokens", usage.prompt_tokens + usage.output_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

// Of chat: {"content":[{"token":...,"logprob":...,"bytes":[...],"top_logprobs":[...]}]}
Json chat_logprobs(std::span<const ipc::TokenLogprobs> tokens) {
  Json content = Json::array();
  for (const ipc::TokenLogprobs& token : tokens) {
    Json top = Json::array();
    for (const ipc::TopLogprob& each : token.top) {
      top.push_back(
          {{"token", each.text}, {"logprob", each.logprob}, {"bytes", bytes_of(each.text)}});
    }
    content.push_back({{"token", token.text},
                       {"logprob", token.logprob},
                       {"bytes", bytes_of(token.text)},
                       {"top_logprobs", std::move(top)}});
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

// Of completions: four lists, a member of each for a token. `offset`: characters before them.
Json completion_logprobs(std::span<const ipc::TokenLogprobs> tokens, size_t* offset) {
  Json out = {{"tokens", Json::array()},
              {"token_logprobs", Json::array()},
              {"top_logprobs", Json::array()},
              {"text_offset", Json::array()}};
  for (const ipc::TokenLogprobs& token : tokens) {
    out["tokens"].push_back(token.text);
    out["token_logprobs"].push_back(token.logprob);
    Json top = Json::object();
    for (const ipc::TopLogprob& each : token.top) top[each.text] = each.logprob;
    out["top_logprobs"].push_back(std::move(top));
    out["text_offset"].push_back(*offset);
    if (token.text.starts_with(kBytesMark)) continue;
    *offset += static_cast<size_t>(std::count_if(token.text.begin(), token.text.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    }));
  }
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
              {"instructions", nullptr},
              {"metadata", Json::object()},
              {"model", head.model},
              {"output", Json::array()},
              {"parallel_tool_calls", false},
              {"temperature", call.request.temperature},
              {"tool_choice", "none"},
              {"tools", Json::array()},
              {"top_p", call.request.top_p},
              {"max_output_tokens", nullptr},
              {"previous_response_id", nullptr},
              {"store", false},
              {"truncation", "disabled"},
              {"usage", nullptr}};
  if (call.request.max_tokens > 0) out["max_output_tokens"] = call.request.max_tokens;
  if (done == nullptr) return out;
  if (cut) out["incomplete_details"] = {{"reason", "max_output_tokens"}};
  out["output"] =
      Json::array({response_message(head, sample->text, cut ? "incomplete" : "completed")});
  const ipc::Usage& usage = done->usage;
  out["usage"] = {{"input_tokens", usage.prompt_tokens},
                  {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
                  {"output_tokens", usage.output_tokens},
                  {"output_tokens_details", {{"reasoning_tokens", 0}}},
                  {"total_tokens", usage.prompt_tokens + usage.output_tokens}};
  return out;
}

Json stop_reason(const Sample& sample) {
  if (!sample.stop.empty()) return "stop_sequence";
  return sample.reason == "length" ? "max_tokens" : "end_turn";
}
Json stop_sequence(const Sample& sample) {
  return sample.stop.empty() ? Json() : Json(sample.stop);
}
Json anthropic_usage(int32_t prompt, int32_t cached, int32_t output) {
  return {{"input_tokens", prompt - cached},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", cached},
          {"output_tokens", output}};
}

void append_event(std::string_view type, const Json& data, std::string* out) {
  *out += fmt::format("event: {}\ndata: {}\n\n", type, ipc::dump_json(data));
}

}  // namespace hearth::http
