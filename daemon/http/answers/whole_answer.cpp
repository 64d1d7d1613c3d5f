// Answers sent as one body.

#include <utility>

#include "daemon/http/answers/answer_parts.h"
#include "daemon/http/answers/echo.h"
#include "daemon/http/answers/logprob_lists.h"

namespace hearth::http {
namespace {

class WholeAnswer final : public AnswerWriter {
 public:
  WholeAnswer(const Call& call, Head head)
      : call_(call),
        head_(std::move(head)),
        samples_(call.num_choices()),
        logprobs_(samples_.size()) {}

  void written_by(std::string_view fingerprint) override { head_.fingerprint = fingerprint; }
  void started(const ipc::StartedEvent& event, std::string*) override { head_.model = event.model; }
  // Convert log probabilities to JSON as they arrive: converting all at the end would delay all
  // other users.
  void delta(uint32_t sample, std::string_view text, std::string_view logprobs,
             std::string*) override {
    if (sample >= samples_.size() || call_.scores_prompt) return;
    samples_[sample].text += text;
    ipc::LogprobTexts texts;
    if (logprobs.empty() || !ipc::read_logprobs(logprobs, &texts)) return;
    if (call_.api == Api::kChat) {
      append_chat_logprobs(texts, &logprobs_[sample].chat);
    } else {
      logprobs_[sample].completion.add(texts);
    }
  }
  void reasoning(uint32_t sample, std::string_view text, std::string*) override {
    if (sample < samples_.size()) samples_[sample].reasoning += text;
  }
  void call(uint32_t sample, const ipc::ToolCall& call, std::string*) override {
    if (sample < samples_.size())
      samples_[sample].calls.push_back({call, {}, call_.is_custom(call.name)});
  }
  void arguments(uint32_t sample, std::string_view json, std::string*) override {
    if (sample >= samples_.size() || samples_[sample].calls.empty()) return;
    samples_[sample].calls.back().arguments += json;
  }
  void sample_done(const ipc::SampleDoneEvent& event, std::string*) override {
    const size_t sample = event.sample;
    if (sample >= samples_.size()) return;
    samples_[sample].reason = event.reason;
    samples_[sample].stop = event.stop;
  }
  void done(const ipc::DoneEvent& event, std::string* out) override {
    head_.model = event.model;
    const bool completion = call_.api == Api::kCompletions || call_.api == Api::kChat;
    completion ? append_completion(event, out) : void(*out += ipc::dump_json(body(event)));
  }
  void failed(const Error&, std::string*) override {}
  void prompt_logprobs(const ipc::PromptLogprobsEvent& event, std::string*) override {
    prompts_.back() = event;
    if (!call_.echo) return;
    const size_t end = prompts_.size() * call_.request.n;
    for (size_t i = end - call_.request.n; i < end; ++i) {
      logprobs_[i].completion.add_prompt(prompts_.back());
    }
  }
  void next_prompt(const ipc::DoneEvent&) override { prompts_.emplace_back(); }
  KeptResponse take_kept() override { return std::move(kept_); }

 private:
  /// The prompt's text: as given, or decoded from its tokens.
  std::string echo(size_t prompt) const {
    if (!call_.echo) return {};
    const std::string& text = prompt == 0 ? call_.request.prompt : call_.further[prompt - 1].text;
    return text.empty() ? prompt_text(prompts_[prompt]) : text;
  }

  Json body(const ipc::DoneEvent& event) {
    switch (call_.api) {
      case Api::kCompletions:
      case Api::kChat:
      case Api::kOllamaGenerate:
      case Api::kOllamaChat: break;
      case Api::kResponses: {
        Json response = response_json(call_, head_, &samples_.front(), &event);
        if (call_.store) kept_ = kept_response(call_, head_, response);
        return response;
      }
      case Api::kMessages: {
        const Sample& sample = samples_.front();
        return {{"id", head_.id},
                {"type", "message"},
                {"role", "assistant"},
                {"model", head_.model},
                {"content", anthropic_content(call_, head_, sample)},
                {"stop_reason", stop_reason(sample)},
                {"stop_sequence", stop_sequence(sample)},
                {"usage", anthropic_usage(call_, event.usage)}};
      }
    }
    return {};
  }

  void append_completion(const ipc::DoneEvent& event, std::string* out) const {
    const bool chat = call_.api == Api::kChat;
    const auto open = [out](const Json& object) {  // leaves the object open for more members
      *out += ipc::dump_json(object);
      out->back() = ',';
    };
    open({{"id", head_.id},
          {"object", chat ? "chat.completion" : "text_completion"},
          {"created", head_.created_s},
          {"model", head_.model}});
    *out += R"("choices":[)";
    for (size_t i = 0; i < samples_.size(); ++i) {
      const Sample& sample = samples_[i];
      if (i > 0) *out += ',';
      Json choice = {{"index", i}};
      if (chat) {
        choice["message"] = chat_message(sample);
      } else {
        choice["text"] = echo(i / call_.request.n) + sample.text;
      }
      open(choice);
      if (!chat && call_.request.prompt_logprobs && !call_.echo) {
        *out += R"("prompt_logprobs":)";
        append_prompt_logprobs(prompts_[i / call_.request.n], out);
        *out += ',';
      }
      *out += R"("logprobs":)";
      if (call_.request.logprobs < 0) {
        *out += "null";
      } else if (chat) {
        append_chat_logprobs_object(logprobs_[i].chat, out);
      } else {
        logprobs_[i].completion.append_to(out);
      }
      *out += R"(,"finish_reason":)";
      append_quoted(call_.scores_prompt ? "length" : finish_reason(sample.reason), out);
      *out += '}';
    }
    *out += R"(],"usage":)";
    ipc::Usage usage = event.usage;
    if (call_.scores_prompt) usage.output_tokens = 0;
    *out += ipc::dump_json(usage_json(call_, usage, event.speculation));
    *out += '}';
  }

  /// Of one sample, for chat or for completions.
  struct Logprobs {
    std::string chat{};
    CompletionLogprobs completion{};
  };

  const Call call_;
  Head head_;
  std::vector<Sample> samples_;
  std::vector<Logprobs> logprobs_;                    // by sample
  std::vector<ipc::PromptLogprobsEvent> prompts_{1};  // as far as they came
  KeptResponse kept_;
};

}  // namespace

std::unique_ptr<AnswerWriter> make_whole_answer(const Call& call, Head head) {
  return std::make_unique<WholeAnswer>(call, std::move(head));
}

}  // namespace hearth::http
