#include "daemon/http/api_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <utility>
#include <vector>

#include "ipc/json.h"
#include "ipc/utf8.h"

namespace hearth::http {
namespace {

using ipc::Json;

constexpr std::string_view kBytesMark = "bytes:\\x";  // see ipc::TokenLogprobs

std::string finish_reason(std::string_view reason) {
  return reason == "length" ? "length" : "stop";
}

Json usage_json(const ipc::Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.output_tokens},
          {"total_tokens", usage.prompt_tokens + usage.output_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

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

struct Head {
  std::string id;  ///< with the API's prefix
  int64_t created_s = 0;
  std::string model;  ///< the file, once it is known
};

std::string id_of(Api api, std::string_view id) {
  switch (api) {
    case Api::kCompletions: return fmt::format("cmpl-{}", id);
    case Api::kChat: return fmt::format("chatcmpl-{}", id);
    case Api::kResponses: return fmt::format("resp_{}", id);
    case Api::kMessages: return fmt::format("msg_{}", id);
  }
  return std::string(id);
}

struct Sample {
  std::string text;
  std::vector<ipc::TokenLogprobs> logprobs;
  std::string reason;
  std::string stop;
};

// ---- Responses, whole -----------------------------------------------------------------------

Json response_message(const Head& head, std::string_view text, std::string_view status) {
  return {
      {"type", "message"},
      {"id", "msg_" + head.id.substr(5)},
      {"status", status},
      {"role", "assistant"},
      {"content",
       Json::array({{{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}}})}};
}

// `done` null: under way.
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

// ---- Anthropic, whole -----------------------------------------------------------------------

Json stop_reason(const Sample& sample) {
  if (!sample.stop.empty()) return "stop_sequence";
  return sample.reason == "length" ? "max_tokens" : "end_turn";
}
Json stop_sequence(const Sample& sample) {
  return sample.stop.empty() ? Json() : Json(sample.stop);
}
// input_tokens are those that were computed: the API counts cached ones apart.
Json anthropic_usage(int32_t prompt, int32_t cached, int32_t output) {
  return {{"input_tokens", prompt - cached},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", cached},
          {"output_tokens", output}};
}

// ---- One body -------------------------------------------------------------------------------

class WholeAnswer final : public AnswerWriter {
 public:
  WholeAnswer(const Call& call, Head head)
      : call_(call), head_(std::move(head)), samples_(static_cast<size_t>(call.request.n)) {}

  void started(const ipc::StartedEvent& event, std::string*) override { head_.model = event.model; }
  void delta(uint32_t sample, std::string_view text, std::span<const ipc::TokenLogprobs> logprobs,
             std::string*) override {
    if (sample >= samples_.size()) return;
    Sample& to = samples_[sample];
    to.text += text;
    to.logprobs.insert(to.logprobs.end(), logprobs.begin(), logprobs.end());
  }
  void sample_done(const ipc::SampleDoneEvent& event, std::string*) override {
    const auto sample = static_cast<size_t>(event.sample);
    if (sample >= samples_.size()) return;
    samples_[sample].reason = event.reason;
    samples_[sample].stop = event.stop;
  }
  void done(const ipc::DoneEvent& event, std::string* out) override {
    head_.model = event.model;
    *out += ipc::dump_json(body(event));
  }
  void failed(const Error&, std::string*) override {}

 private:
  Json body(const ipc::DoneEvent& event) {
    switch (call_.api) {
      case Api::kCompletions:
      case Api::kChat: break;
      case Api::kResponses: return response_json(call_, head_, &samples_.front(), &event);
      case Api::kMessages: {
        const Sample& sample = samples_.front();
        return {{"id", head_.id},
                {"type", "message"},
                {"role", "assistant"},
                {"model", head_.model},
                {"content", Json::array({{{"type", "text"}, {"text", sample.text}}})},
                {"stop_reason", stop_reason(sample)},
                {"stop_sequence", stop_sequence(sample)},
                {"usage", anthropic_usage(event.usage.prompt_tokens, event.usage.cached_tokens,
                                          event.usage.output_tokens)}};
      }
    }
    const bool chat = call_.api == Api::kChat;
    const bool wants_logprobs = call_.request.logprobs >= 0;
    Json choices = Json::array();
    for (size_t i = 0; i < samples_.size(); ++i) {
      const Sample& sample = samples_[i];
      Json choice = {{"index", i}};
      if (chat) {
        choice["message"] = {{"role", "assistant"}, {"content", sample.text}, {"refusal", nullptr}};
      } else {
        choice["text"] = sample.text;
      }
      choice["logprobs"] = nullptr;
      size_t offset = 0;
      if (wants_logprobs) {
        choice["logprobs"] =
            chat ? chat_logprobs(sample.logprobs) : completion_logprobs(sample.logprobs, &offset);
      }
      choice["finish_reason"] = finish_reason(sample.reason);
      choices.push_back(std::move(choice));
    }
    return {{"id", head_.id},
            {"object", chat ? "chat.completion" : "text_completion"},
            {"created", head_.created_s},
            {"model", head_.model},
            {"choices", std::move(choices)},
            {"usage", usage_json(event.usage)}};
  }

  const Call call_;
  Head head_;
  std::vector<Sample> samples_;
};

// ---- Streams --------------------------------------------------------------------------------

// Chunks of the OpenAI completion APIs. What stands around a token's text is made once.
class ChunkStream final : public AnswerWriter {
 public:
  ChunkStream(const Call& call, Head head)
      : call_(call),
        chat_(call.api == Api::kChat),
        head_(std::move(head)),
        offsets_(static_cast<size_t>(call.request.n)) {}

  void started(const ipc::StartedEvent& event, std::string* out) override {
    head_.model = event.model;
    Json begin = {{"id", head_.id},
                  {"object", chat_ ? "chat.completion.chunk" : "text_completion"},
                  {"created", head_.created_s},
                  {"model", head_.model}};
    begin_ = "data: " + ipc::dump_json(begin);
    begin_.back() = ',';  // of the object's end
    end_ = call_.include_usage ? "],\"usage\":null}\n\n" : "]}\n\n";
    if (!chat_) return;
    for (int32_t i = 0; i < call_.request.n; ++i) {
      begin_choice(static_cast<uint32_t>(i), out);
      *out += R"("delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null})";
      *out += end_;
    }
  }

  void delta(uint32_t sample, std::string_view text, std::span<const ipc::TokenLogprobs> logprobs,
             std::string* out) override {
    if (text.empty() && logprobs.empty()) return;  // a part of a character
    begin_choice(sample, out);
    *out += chat_ ? R"("delta":{"content":)" : R"("text":)";
    append_quoted(text, out);
    if (chat_) *out += '}';
    *out += R"(,"logprobs":)";
    if (logprobs.empty()) {
      *out += "null";
    } else {
      *out += ipc::dump_json(chat_ ? chat_logprobs(logprobs)
                                   : completion_logprobs(logprobs, &offsets_.at(sample)));
    }
    *out += R"(,"finish_reason":null})";
    *out += end_;
  }

  void sample_done(const ipc::SampleDoneEvent& event, std::string* out) override {
    begin_choice(static_cast<uint32_t>(event.sample), out);
    *out += chat_ ? R"("delta":{})" : R"("text":"")";
    *out += fmt::format(R"(,"logprobs":null,"finish_reason":"{}"}})", finish_reason(event.reason));
    *out += end_;
  }

  void done(const ipc::DoneEvent& event, std::string* out) override {
    if (call_.include_usage) {
      *out += fmt::format("{}\"choices\":[],\"usage\":{}}}\n\n", begin_,
                          ipc::dump_json(usage_json(event.usage)));
    }
    *out += "data: [DONE]\n\n";
  }

  void failed(const Error& error, std::string* out) override {
    *out +=
        fmt::format("data: {}\n\n", error_body(call_.api, status_of(call_.api, error.code), error));
  }

 private:
  void begin_choice(uint32_t sample, std::string* out) const {
    *out += begin_;
    fmt::format_to(std::back_inserter(*out), "\"choices\":[{{\"index\":{},", sample);
  }

  const Call call_;
  const bool chat_;
  Head head_;
  std::vector<size_t> offsets_;  // characters so far, per sample
  std::string begin_;
  std::string end_;
};

void append_event(std::string_view type, const Json& data, std::string* out) {
  *out += fmt::format("event: {}\ndata: {}\n\n", type, ipc::dump_json(data));
}

class ResponseStream final : public AnswerWriter {
 public:
  ResponseStream(const Call& call, Head head) : call_(call), head_(std::move(head)) {}

  void started(const ipc::StartedEvent& event, std::string* out) override {
    head_.model = event.model;
    const Json response = response_json(call_, head_, nullptr, nullptr);
    say("response.created", {{"response", response}}, out);
    say("response.in_progress", {{"response", response}}, out);
    Json item = response_message(head_, "", "in_progress");
    const std::string item_id = item["id"].get<std::string>();
    item["content"] = Json::array();
    say("response.output_item.added", {{"output_index", 0}, {"item", item}}, out);
    place_ = {{"item_id", item_id}, {"output_index", 0}, {"content_index", 0}};
    Json part = place_;
    part["part"] = {{"type", "output_text"}, {"text", ""}, {"annotations", Json::array()}};
    say("response.content_part.added", part, out);
    around_ = ipc::dump_json(place_);
    around_.erase(0, 1);  // its braces: members to stand among others
    around_.pop_back();
  }

  void delta(uint32_t, std::string_view text, std::span<const ipc::TokenLogprobs>,
             std::string* out) override {
    if (text.empty()) return;
    sample_.text += text;
    fmt::format_to(std::back_inserter(*out),
                   "event: response.output_text.delta\ndata: "
                   "{{\"type\":\"response.output_text.delta\",\"sequence_number\":{},{},"
                   "\"logprobs\":[],\"delta\":",
                   sequence_++, around_);
    append_quoted(text, out);
    *out += "}\n\n";
  }

  void sample_done(const ipc::SampleDoneEvent& event, std::string*) override {
    sample_.reason = event.reason;
  }

  void done(const ipc::DoneEvent& event, std::string* out) override {
    Json text = place_;
    text["text"] = sample_.text;
    text["logprobs"] = Json::array();
    say("response.output_text.done", text, out);
    const bool cut = sample_.reason == "length";
    const Json item = response_message(head_, sample_.text, cut ? "incomplete" : "completed");
    Json part = place_;
    part["part"] = item["content"][0];
    say("response.content_part.done", part, out);
    say("response.output_item.done", {{"output_index", 0}, {"item", item}}, out);
    say(cut ? "response.incomplete" : "response.completed",
        {{"response", response_json(call_, head_, &sample_, &event)}}, out);
  }

  void failed(const Error& error, std::string* out) override {
    say("error",
        {{"code", std::string(name(error.code))}, {"message", error.message}, {"param", nullptr}},
        out);
  }

 private:
  void say(std::string_view type, const Json& members, std::string* out) {
    Json data = {{"type", std::string(type)}, {"sequence_number", sequence_++}};
    for (const auto& [key, value] : members.items()) data[key] = value;
    append_event(type, data, out);
  }

  const Call call_;
  Head head_;
  Sample sample_;
  Json place_;
  std::string around_;
  int64_t sequence_ = 0;
};

class AnthropicStream final : public AnswerWriter {
 public:
  AnthropicStream(const Call& call, Head head) : call_(call), head_(std::move(head)) {}

  void started(const ipc::StartedEvent& event, std::string* out) override {
    append_event("message_start",
                 {{"type", "message_start"},
                  {"message",
                   {{"id", head_.id},
                    {"type", "message"},
                    {"role", "assistant"},
                    {"model", event.model},
                    {"content", Json::array()},
                    {"stop_reason", nullptr},
                    {"stop_sequence", nullptr},
                    {"usage", anthropic_usage(event.prompt_tokens, event.cached_tokens, 0)}}}},
                 out);
    append_event("content_block_start",
                 {{"type", "content_block_start"},
                  {"index", 0},
                  {"content_block", {{"type", "text"}, {"text", ""}}}},
                 out);
  }

  void delta(uint32_t, std::string_view text, std::span<const ipc::TokenLogprobs>,
             std::string* out) override {
    if (text.empty()) return;
    *out +=
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,"
        "\"delta\":{\"type\":\"text_delta\",\"text\":";
    append_quoted(text, out);
    *out += "}}\n\n";
  }

  void sample_done(const ipc::SampleDoneEvent& event, std::string*) override {
    sample_.reason = event.reason;
    sample_.stop = event.stop;
  }

  void done(const ipc::DoneEvent& event, std::string* out) override {
    append_event("content_block_stop", {{"type", "content_block_stop"}, {"index", 0}}, out);
    append_event(
        "message_delta",
        {{"type", "message_delta"},
         {"delta",
          {{"stop_reason", stop_reason(sample_)}, {"stop_sequence", stop_sequence(sample_)}}},
         {"usage", anthropic_usage(event.usage.prompt_tokens, event.usage.cached_tokens,
                                   event.usage.output_tokens)}},
        out);
    append_event("message_stop", {{"type", "message_stop"}}, out);
  }

  void failed(const Error& error, std::string* out) override {
    *out += fmt::format("event: error\ndata: {}\n\n",
                        error_body(call_.api, status_of(call_.api, error.code), error));
  }

 private:
  const Call call_;
  const Head head_;
  Sample sample_;
};

std::string_view openai_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 501:
    case 505: return "invalid_request_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

std::string_view anthropic_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 501:
    case 505: return "invalid_request_error";
    case 529: return "overloaded_error";
    default: return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

// The word that clients of this API look for, where it has one.
std::string openai_code(int status, ErrorCode code) {
  if (status == 401) return "invalid_api_key";
  if (code == ErrorCode::kContextOverflow) return "context_length_exceeded";
  if (status == 404) return code == ErrorCode::kNotFound ? "model_not_found" : "not_found";
  if (code == ErrorCode::kBusy) return "rate_limit_exceeded";
  return std::string(name(code));
}

Json model_json(const std::string& id, const ipc::ModelEntry& entry) {
  return {{"id", id},
          {"object", "model"},
          {"created", 0},
          {"owned_by", "hearth"},
          {"hearth",
           {{"file", entry.name},
            {"state", entry.state},
            {"context_length", entry.context_length},
            {"file_bytes", entry.file_bytes}}}};
}

// Every name that a request may use, with the model that it means.
template <class Visit>
void for_each_name(const ipc::ModelsReply& reply, Visit visit) {
  for (const ipc::ModelEntry& entry : reply.models) visit(entry.name, entry);
  for (const ipc::ModelEntry& entry : reply.models) {
    for (const std::string& role : entry.roles) visit(role, entry);
  }
}

}  // namespace

int status_of(Api api, ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnknownField:
    case ErrorCode::kProtocol:
    case ErrorCode::kContextOverflow:
    case ErrorCode::kUnsupported:
    case ErrorCode::kCancelled: return 400;
    case ErrorCode::kForbidden: return 403;
    case ErrorCode::kNotFound: return 404;
    case ErrorCode::kTooLarge: return 413;
    case ErrorCode::kBusy: return 429;
    case ErrorCode::kUnavailable:
    case ErrorCode::kOutOfMemory: return api == Api::kMessages ? 529 : 503;
    case ErrorCode::kDeadline: return 504;
    case ErrorCode::kPoison:
    case ErrorCode::kCorrupt:
    case ErrorCode::kIo:
    case ErrorCode::kLost:
    case ErrorCode::kInternal: break;
  }
  return 500;
}

std::string error_body(Api api, int status, const Error& error) {
  if (api == Api::kMessages) {
    return ipc::dump_json(
        {{"type", "error"},
         {"error", {{"type", std::string(anthropic_type(status))}, {"message", error.message}}}});
  }
  return ipc::dump_json({{"error",
                          {{"message", error.message},
                           {"type", std::string(openai_type(status))},
                           {"param", error.field.empty() ? Json() : Json(error.field)},
                           {"code", openai_code(status, error.code)}}}});
}

std::unique_ptr<AnswerWriter> make_answer_writer(const Call& call, std::string_view id,
                                                 int64_t created_s) {
  Head head{.id = id_of(call.api, id), .created_s = created_s, .model = {}};
  if (!call.stream) return std::make_unique<WholeAnswer>(call, std::move(head));
  switch (call.api) {
    case Api::kCompletions:
    case Api::kChat: break;
    case Api::kResponses: return std::make_unique<ResponseStream>(call, std::move(head));
    case Api::kMessages: return std::make_unique<AnthropicStream>(call, std::move(head));
  }
  return std::make_unique<ChunkStream>(call, std::move(head));
}

const char* abnormal_end(const ipc::DoneEvent& done) {
  for (const std::string& reason : done.finish_reasons) {
    if (reason == "cancelled") return "the request was cancelled";
    if (reason == "deadline") return "the request's own deadline has passed";
  }
  return nullptr;
}

void append_quoted(std::string_view text, std::string* out) {
  *out += '"';
  size_t plain = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out->append(text, plain, i - plain);
    plain = i + 1;
    switch (c) {
      case '"': *out += "\\\""; break;
      case '\\': *out += "\\\\"; break;
      case '\n': *out += "\\n"; break;
      case '\r': *out += "\\r"; break;
      case '\t': *out += "\\t"; break;
      default: fmt::format_to(std::back_inserter(*out), "\\u{:04x}", c);
    }
  }
  out->append(text, plain, text.size() - plain);
  *out += '"';
}

std::string tokenize_body(const ipc::TokenizeReply& reply) {
  return ipc::dump_json({{"model", reply.model},
                         {"count", reply.ids.size()},
                         {"ids", reply.ids},
                         {"entries", reply.entries}});
}

std::string models_body(const ipc::ModelsReply& reply) {
  Json data = Json::array();
  for_each_name(reply, [&](const std::string& id, const ipc::ModelEntry& entry) {
    data.push_back(model_json(id, entry));
  });
  return ipc::dump_json({{"object", "list"}, {"data", std::move(data)}});
}

std::string model_body(const ipc::ModelsReply& reply, std::string_view name) {
  std::string body;
  for_each_name(reply, [&](const std::string& id, const ipc::ModelEntry& entry) {
    if (body.empty() && id == name) body = ipc::dump_json(model_json(id, entry));
  });
  return body;
}

std::string health_body(const ipc::HealthReply& reply) {
  return ipc::dump_json({{"status", reply.status}, {"problems", reply.problems}});
}

}  // namespace hearth::http
