// Answers to several prompts of one request.

#include <utility>

#include "daemon/http/answers/answer_parts.h"

namespace hearth::http {
namespace {

class JoinedAnswer final : public AnswerWriter {
 public:
  JoinedAnswer(std::unique_ptr<AnswerWriter> inner, int32_t n) : inner_(std::move(inner)), n_(n) {}

  void started(const ipc::StartedEvent& event, std::string* out) override {
    ipc::StartedEvent whole = event;
    whole.prompt_tokens += before_.prompt_tokens;
    inner_->started(whole, out);
  }
  void prompt_logprobs(const ipc::PromptLogprobsEvent& event, std::string* out) override {
    inner_->prompt_logprobs(event, out);
  }
  void tokens(uint32_t sample, uint32_t so_far) override {
    inner_->tokens(first_ + sample, so_far);
  }
  void delta(uint32_t sample, std::string_view text, std::string_view logprobs,
             std::string* out) override {
    inner_->delta(first_ + sample, text, logprobs, out);
  }
  void sample_done(const ipc::SampleDoneEvent& event, std::string* out) override {
    ipc::SampleDoneEvent moved = event;
    moved.sample += first_;
    inner_->sample_done(moved, out);
  }
  void next_prompt(const ipc::DoneEvent& event) override {
    first_ += n_;
    add(event.usage, &before_);
    inner_->next_prompt(event);
  }
  void done(const ipc::DoneEvent& event, std::string* out) override {
    ipc::DoneEvent whole = event;
    add(before_, &whole.usage);
    inner_->done(whole, out);
  }
  void failed(const Error& error, std::string* out) override { inner_->failed(error, out); }

 private:
  static void add(const ipc::Usage& more, ipc::Usage* to) {
    to->prompt_tokens += more.prompt_tokens;
    to->cached_tokens += more.cached_tokens;
    to->output_tokens += more.output_tokens;
    to->reasoning_tokens += more.reasoning_tokens;
    if (more.remote) to->remote = more.remote;
  }

  const std::unique_ptr<AnswerWriter> inner_;
  const int32_t n_;
  int32_t first_ = 0;  // choice of the current prompt
  ipc::Usage before_;  // of the earlier prompts
};

}  // namespace

std::unique_ptr<AnswerWriter> make_joined_answer(std::unique_ptr<AnswerWriter> inner, int32_t n) {
  return std::make_unique<JoinedAnswer>(std::move(inner), n);
}

}  // namespace hearth::http
