// Streams of Anthropic's messages API: content blocks in sequence.

#include <fmt/core.h>

#include <utility>

#include "daemon/http/answers/answer_parts.h"

namespace hearth::http {
namespace {

class AnthropicStream final : public AnswerWriter {
 public:
  AnthropicStream(const Call& call, Head head) : call_(call), head_(std::move(head)) {}

  void written_by(std::string_view fingerprint) override { head_.fingerprint = fingerprint; }
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
                    {"usage", anthropic_usage(call_, {.prompt_tokens = event.prompt_tokens,
                                                      .cached_tokens = event.cached_tokens})}}}},
                 out);
    append_event("ping", {{"type", "ping"}}, out);
  }

  void delta(uint32_t, std::string_view text, std::string_view, std::string* out) override {
    if (text.empty()) return;
    enter(Block::kText, {{"type", "text"}, {"text", ""}}, out);
    say_delta("text_delta", "text", text, out);
  }
  void reasoning(uint32_t, std::string_view text, std::string* out) override {
    enter(Block::kThinking, {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}}, out);
    thinking_ += text;
    say_delta("thinking_delta", "thinking", text, out);
  }
  void call(uint32_t, const ipc::ToolCall& call, std::string* out) override {
    leave(out);
    enter(Block::kCall,
          {{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", Json::object()}},
          out);
  }
  void arguments(uint32_t, std::string_view json, std::string* out) override {
    if (block_ == Block::kCall) say_delta("input_json_delta", "partial_json", json, out);
  }

  void sample_done(const ipc::SampleDoneEvent& event, std::string*) override {
    sample_.reason = event.reason;
    sample_.stop = event.stop;
  }

  void done(const ipc::DoneEvent& event, std::string* out) override {
    // An empty answer gets one empty text block.
    if (index_ == 0 && block_ == Block::kNone) {
      enter(Block::kText, {{"type", "text"}, {"text", ""}}, out);
    }
    leave(out);
    append_event(
        "message_delta",
        {{"type", "message_delta"},
         {"delta",
          {{"stop_reason", stop_reason(sample_)}, {"stop_sequence", stop_sequence(sample_)}}},
         {"usage", anthropic_usage(call_, event.usage)}},
        out);
    append_event("message_stop", {{"type", "message_stop"}}, out);
  }

  void failed(const Error& error, std::string* out) override {
    *out += fmt::format(
        "event: error\ndata: {}\n\n",
        error_body(call_.api, status_of(call_.api, error.code), error, request_id_of(head_)));
  }

 private:
  enum class Block { kNone, kText, kThinking, kCall };

  void enter(Block block, const Json& begin, std::string* out) {
    if (block_ == block) return;
    leave(out);
    block_ = block;
    append_event("content_block_start",
                 {{"type", "content_block_start"}, {"index", index_}, {"content_block", begin}},
                 out);
  }
  void leave(std::string* out) {
    if (block_ == Block::kNone) return;
    if (block_ == Block::kThinking && call_.seal) {
      say_delta("signature_delta", "signature", thinking_signature(call_, head_, thinking_), out);
    }
    thinking_.clear();
    block_ = Block::kNone;
    append_event("content_block_stop", {{"type", "content_block_stop"}, {"index", index_++}}, out);
  }
  void say_delta(std::string_view type, std::string_view member, std::string_view text,
                 std::string* out) const {
    *out += fmt::format(
        "event: content_block_delta\ndata: "
        "{{\"type\":\"content_block_delta\",\"index\":{},"
        "\"delta\":{{\"type\":\"{}\",\"{}\":",
        index_, type, member);
    append_quoted(text, out);
    *out += "}}\n\n";
  }

  const Call call_;
  Head head_;
  Sample sample_;
  Block block_ = Block::kNone;
  std::string thinking_;  // of the current block
  int32_t index_ = 0;
};

}  // namespace

std::unique_ptr<AnswerWriter> make_anthropic_stream(const Call& call, Head head) {
  return std::make_unique<AnthropicStream>(call, std::move(head));
}

}  // namespace hearth::http
