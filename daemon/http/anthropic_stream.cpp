// Streams of Anthropic's messages API.

#include <fmt/format.h>

#include <utility>

#include "daemon/http/answer_parts.h"

namespace hearth::http {
namespace {

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

}  // namespace

std::unique_ptr<AnswerWriter> make_anthropic_stream(const Call& call, Head head) {
  return std::make_unique<AnthropicStream>(call, std::move(head));
}

}  // namespace hearth::http
