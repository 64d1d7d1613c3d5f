// Answers of Ollama's API: one JSON object, or one a line as they arrive.

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <cmath>
#include <utility>

#include "daemon/http/answers/answer_parts.h"
#include "daemon/http/answers/logprob_lists.h"
#include "daemon/http/answers/named_models.h"

namespace hearth::http {
namespace {

int64_t nanoseconds(double ms) { return std::llround(ms * 1e6); }

/// A call is one object with its arguments, so a stream sends it once it is complete.
class OllamaAnswer final : public AnswerWriter {
 public:
  OllamaAnswer(const Call& call, Head head)
      : chat_(call.api == Api::kOllamaChat), stream_(call.stream), head_(std::move(head)) {}

  void started(const ipc::StartedEvent& event, std::string*) override { head_.model = event.model; }
  void delta(uint32_t, std::string_view text, std::string_view logprobs,
             std::string* out) override {
    ipc::LogprobTexts texts;
    if (!logprobs.empty() && ipc::read_logprobs(logprobs, &texts)) {
      append_chat_logprobs(texts, &logprobs_);
    }
    now_.text += text;
    if (!text.empty() || !logprobs_.empty()) send(out);
  }
  void reasoning(uint32_t, std::string_view text, std::string* out) override {
    now_.reasoning += text;
    send(out);
  }
  void call(uint32_t, const ipc::ToolCall& call, std::string* out) override {
    send(out);
    now_.calls.push_back({call, {}});
  }
  void arguments(uint32_t, std::string_view json, std::string*) override {
    if (!now_.calls.empty()) now_.calls.back().arguments += json;
  }
  void sample_done(const ipc::SampleDoneEvent& event, std::string* out) override {
    send(out);
    reason_ = event.reason == "length" ? "length" : "stop";
  }
  void done(const ipc::DoneEvent& event, std::string* out) override {
    head_.model = event.model;
    const ipc::Timings& timings = event.timings;
    const int32_t tokens = event.usage.output_tokens;
    Json last = object();
    last["done"] = true;
    last["done_reason"] = reason_;
    last["total_duration"] = nanoseconds(timings.total_ms);
    last["prompt_eval_count"] = event.usage.prompt_tokens;
    if (event.usage.remote) last["remote"] = *event.usage.remote;
    last["prompt_eval_duration"] = nanoseconds(timings.prefill_ms);
    last["eval_count"] = tokens;
    // From the first token to the last.
    last["eval_duration"] = nanoseconds(timings.tpot_ms * std::max(tokens - 1, 0));
    append(last, out);
  }
  void failed(const Error& error, std::string* out) override {
    append({{"error", error.message}}, out);
  }

 private:
  /// Sends what came since the last time, in a stream. A call that is not complete waits.
  void send(std::string* out) {
    const bool nothing =
        now_.text.empty() && now_.reasoning.empty() && now_.calls.empty() && logprobs_.empty();
    if (!stream_ || nothing) return;
    Json next = object();
    next["done"] = false;
    append(next, out);
    now_ = {};
    logprobs_.clear();
  }
  Json object() const {
    Json out = {{"model", head_.model}, {"created_at", time_text(head_.created_s)}};
    if (!chat_) {
      out["response"] = now_.text;
      if (!now_.reasoning.empty()) out["thinking"] = now_.reasoning;
      return out;
    }
    Json message = {{"role", "assistant"}, {"content", now_.text}};
    if (!now_.reasoning.empty()) message["thinking"] = now_.reasoning;
    for (const MadeCall& each : now_.calls) {
      message["tool_calls"].push_back(
          {{"function",
            {{"name", each.call.name}, {"arguments", arguments_object(each.arguments)}}}});
    }
    out["message"] = std::move(message);
    return out;
  }
  void append(const Json& object, std::string* out) const {
    *out += ipc::dump_json(object);
    if (!logprobs_.empty()) {
      out->back() = ',';
      *out += R"("logprobs":[)" + logprobs_ + "]}";
    }
    if (stream_) *out += '\n';
  }

  const bool chat_;
  const bool stream_;
  Head head_;
  Sample now_;            // not sent yet
  std::string logprobs_;  // of its tokens
  std::string reason_ = "stop";
};

}  // namespace

std::string time_text(int64_t seconds) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time_t{seconds}));
}

std::unique_ptr<AnswerWriter> make_ollama_answer(const Call& call, Head head) {
  return std::make_unique<OllamaAnswer>(call, std::move(head));
}

std::string ollama_loaded_body(Api api, std::string_view model, int64_t created_s,
                               std::string_view reason) {
  Json out = {{"model", model}, {"created_at", time_text(created_s)}};
  if (api == Api::kOllamaChat) {
    out["message"] = {{"role", "assistant"}, {"content", ""}};
  } else {
    out["response"] = "";
  }
  out["done"] = true;
  out["done_reason"] = reason;
  return ipc::dump_json(out) + "\n";
}

}  // namespace hearth::http
