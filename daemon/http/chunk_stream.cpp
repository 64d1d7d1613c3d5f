// Streams of OpenAI's completion APIs.

#include <fmt/format.h>

#include <iterator>
#include <utility>
#include <vector>

#include "daemon/http/answer_parts.h"

namespace hearth::http {
namespace {

// Chunks of the OpenAI completion APIs. What stands around a token's text is made once.
class ChunkStream final : public AnswerWriter {
 public:
  ChunkStream(const Call& call, Head head)
      : call_(call),
        chat_(call.api == Api::kChat),
        head_(std::move(head)),
        offsets_(static_cast<size_t>(call.request.n)),
        calls_(static_cast<size_t>(call.request.n)) {}

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

  void reasoning(uint32_t sample, std::string_view text, std::string* out) override {
    begin_choice(sample, out);
    *out += R"("delta":{"reasoning_content":)";
    append_quoted(text, out);
    end_delta(out);
  }
  void call(uint32_t sample, const ipc::ToolCall& call, std::string* out) override {
    begin_choice(sample, out);
    calls_.at(sample) = call.index;
    fmt::format_to(std::back_inserter(*out),
                   R"("delta":{{"tool_calls":[{{"index":{},"id":"{}","type":"function",)"
                   R"("function":{{"name":"{}","arguments":""}}}}])",
                   call.index, call.id, call.name);
    end_delta(out);
  }
  void arguments(uint32_t sample, std::string_view json, std::string* out) override {
    begin_choice(sample, out);
    fmt::format_to(std::back_inserter(*out),
                   R"("delta":{{"tool_calls":[{{"index":{},"function":{{"arguments":)",
                   calls_.at(sample));
    append_quoted(json, out);
    *out += "}}]";
    end_delta(out);
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
  void end_delta(std::string* out) const {
    *out += R"(},"logprobs":null,"finish_reason":null})";
    *out += end_;
  }
  void begin_choice(uint32_t sample, std::string* out) const {
    *out += begin_;
    fmt::format_to(std::back_inserter(*out), "\"choices\":[{{\"index\":{},", sample);
  }

  const Call call_;
  const bool chat_;
  Head head_;
  std::vector<size_t> offsets_;  // characters so far, per sample
  std::vector<int32_t> calls_;   // index of the one under way, per sample
  std::string begin_;
  std::string end_;
};

}  // namespace

std::unique_ptr<AnswerWriter> make_chunk_stream(const Call& call, Head head) {
  return std::make_unique<ChunkStream>(call, std::move(head));
}

}  // namespace hearth::http
