// Answers that are one body.

#include <utility>

#include "daemon/http/answer_parts.h"
#include "daemon/http/echo.h"

namespace hearth::http {
namespace {

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
  void reasoning(uint32_t sample, std::string_view text, std::string*) override {
    if (sample < samples_.size()) samples_[sample].reasoning += text;
  }
  void call(uint32_t sample, const ipc::ToolCall& call, std::string*) override {
    if (sample < samples_.size()) samples_[sample].calls.push_back({call, {}});
  }
  void arguments(uint32_t sample, std::string_view json, std::string*) override {
    if (sample >= samples_.size() || samples_[sample].calls.empty()) return;
    samples_[sample].calls.back().arguments += json;
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
  void prompt_logprobs(const ipc::PromptLogprobsEvent& event, std::string*) override {
    prompt_ = event;
  }

 private:
  /// The prompt as text: as it was given, or else what its tokens stand for.
  std::string echo() const {
    if (!call_.echo) return {};
    return call_.request.prompt_ids.empty() ? call_.request.prompt : prompt_text(prompt_);
  }

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
                {"content", anthropic_content(sample)},
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
        choice["message"] = chat_message(sample);
      } else {
        choice["text"] = echo() + sample.text;
        if (call_.request.prompt_logprobs && !call_.echo) {
          choice["prompt_logprobs"] = prompt_logprobs_list(prompt_);
        }
      }
      choice["logprobs"] = nullptr;
      size_t offset = 0;
      if (wants_logprobs) {
        choice["logprobs"] = chat ? chat_logprobs(sample.logprobs)
                                  : (call_.echo ? echoed_logprobs(prompt_, sample.logprobs)
                                                : completion_logprobs(sample.logprobs, &offset));
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
  ipc::PromptLogprobsEvent prompt_;
};

}  // namespace

std::unique_ptr<AnswerWriter> make_whole_answer(const Call& call, Head head) {
  return std::make_unique<WholeAnswer>(call, std::move(head));
}

}  // namespace hearth::http
