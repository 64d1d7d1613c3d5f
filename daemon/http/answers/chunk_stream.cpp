// Streams of OpenAI's completion APIs.

#include <fmt/core.h>

#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/http/answers/answer_parts.h"
#include "daemon/http/answers/logprob_lists.h"

namespace hearth::http {
namespace {

constexpr const char* kUnfinished = R"(,"finish_reason":null})";

// Chunks of the OpenAI completion APIs. The JSON around a token's text is built once.
class ChunkStream final : public AnswerWriter {
 public:
  ChunkStream(const Call& call, Head head)
      : call_(call),
        chat_(call.api == Api::kChat),
        head_(std::move(head)),
        choices_(call.num_choices()) {}

  void started(const ipc::StartedEvent& event, std::string* out) override {
    head_.model = event.model;
    Json begin = {{"id", head_.id},
                  {"object", chat_ ? "chat.completion.chunk" : "text_completion"},
                  {"created", head_.created_s},
                  {"model", head_.model}};
    begin_ = "data: " + ipc::dump_json(begin);
    begin_.back() = ',';  // replaces the object's closing brace
    prompt_tokens_ = event.prompt_tokens;
    set_end(call_.include_usage ? "],\"usage\":null}\n\n" : "]}\n\n");
    for (size_t i = 0; i < choices_.size(); ++i) {
      choices_[i].begin = fmt::format(R"({}"choices":[{{"index":{},)", begin_, i);
    }
    if (!chat_) return;
    for (const Choice& choice : choices_) {
      *out += choice.begin;
      *out += R"("delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null})";
      *out += end_;
    }
  }

  void tokens(uint32_t sample, uint32_t so_far) override {
    if (!call_.continuous_usage) return;
    choices_.at(sample).tokens = so_far;
    uint32_t output = 0;
    for (const Choice& choice : choices_) output += choice.tokens;
    set_end(
        fmt::format(R"(],"usage":{{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{}}}}})"
                    "\n\n",
                    prompt_tokens_, output, prompt_tokens_ + output));
  }

  void delta(uint32_t sample, std::string_view text, std::string_view logprobs,
             std::string* out) override {
    if (text.empty() && logprobs.empty()) return;  // an incomplete character
    Choice& choice = choices_.at(sample);
    *out += choice.begin;
    *out += chat_ ? R"("delta":{"content":)" : R"("text":)";
    append_quoted(text, out);
    if (chat_) *out += '}';
    ipc::LogprobTexts texts;
    if (logprobs.empty() || !ipc::read_logprobs(logprobs, &texts)) {
      *out += delta_end_;
      return;
    }
    *out += R"(,"logprobs":)";
    if (chat_) {
      std::string members;
      append_chat_logprobs(texts, &members);
      append_chat_logprobs_object(members, out);
    } else {
      CompletionLogprobs lists(choice.offset);
      lists.add(texts);
      lists.append_to(out);
      choice.offset = lists.offset();
    }
    *out += kUnfinished;
    *out += end_;
  }

  void reasoning(uint32_t sample, std::string_view text, std::string* out) override {
    *out += choices_.at(sample).begin;
    *out += R"("delta":{"reasoning_content":)";
    append_quoted(text, out);
    end_delta(out);
  }
  void call(uint32_t sample, const ipc::ToolCall& call, std::string* out) override {
    Choice& choice = choices_.at(sample);
    end_custom(choice, out);
    choice.call = call.index;
    if (call_.is_custom(call.name)) choice.custom = MadeCall{.call = call, .custom = true};
    const auto [type, text] =
        choice.custom ? std::pair("custom", "input") : std::pair("function", "arguments");
    *out += choice.begin;
    fmt::format_to(std::back_inserter(*out),
                   R"("delta":{{"tool_calls":[{{"index":{},"id":"{}","type":"{}",)"
                   R"("{}":{{"name":"{}","{}":""}}}}])",
                   call.index, call.id, type, type, call.name, text);
    end_delta(out);
  }
  void arguments(uint32_t sample, std::string_view json, std::string* out) override {
    Choice& choice = choices_.at(sample);
    if (choice.custom) {
      choice.custom->arguments += json;
      return;
    }
    *out += choice.begin;
    fmt::format_to(std::back_inserter(*out),
                   R"("delta":{{"tool_calls":[{{"index":{},"function":{{"arguments":)",
                   choice.call);
    append_quoted(json, out);
    *out += "}}]";
    end_delta(out);
  }

  void sample_done(const ipc::SampleDoneEvent& event, std::string* out) override {
    const std::string reason = finish_reason(event.reason);
    if (reason.empty()) return;
    end_custom(choices_.at(event.sample), out);
    *out += choices_.at(event.sample).begin;
    *out += chat_ ? R"("delta":{})" : R"("text":"")";
    *out += fmt::format(R"(,"logprobs":null,"finish_reason":"{}"}})", reason);
    *out += end_;
  }

  void done(const ipc::DoneEvent& event, std::string* out) override {
    if (call_.include_usage) {
      *out += fmt::format("{}\"choices\":[],\"usage\":{}}}\n\n", begin_,
                          ipc::dump_json(usage_json(call_, event.usage, event.speculation)));
    }
    *out += "data: [DONE]\n\n";
  }

  void failed(const Error& error, std::string* out) override {
    *out +=
        fmt::format("data: {}\n\n", error_body(call_.api, status_of(call_.api, error.code), error));
  }

 private:
  struct Choice {
    std::string begin;  // of each chunk, up to the new text
    size_t offset = 0;  // characters sent so far
    int32_t call = 0;   // index of the current call
    uint32_t tokens = 0;
    std::optional<MadeCall> custom{};  // a call of a custom tool that has not ended
  };
  /// The input of a custom tool, at once.
  void end_custom(Choice& choice, std::string* out) const {
    if (!choice.custom) return;
    const MadeCall made = *std::exchange(choice.custom, std::nullopt);
    *out += choice.begin;
    fmt::format_to(std::back_inserter(*out),
                   R"("delta":{{"tool_calls":[{{"index":{},"custom":{{"input":)", choice.call);
    append_quoted(custom_input(made), out);
    *out += "}}]";
    end_delta(out);
  }
  void set_end(std::string end) {
    end_ = std::move(end);
    delta_end_ = std::string(R"(,"logprobs":null)") + kUnfinished + end_;
  }
  void end_delta(std::string* out) const {
    *out += '}';
    *out += delta_end_;
  }

  const Call call_;
  const bool chat_;
  Head head_;
  std::vector<Choice> choices_;  // by sample
  int32_t prompt_tokens_ = 0;
  std::string begin_;
  std::string end_;
  std::string delta_end_;  // after a delta without log probabilities
};

}  // namespace

std::unique_ptr<AnswerWriter> make_chunk_stream(const Call& call, Head head) {
  return std::make_unique<ChunkStream>(call, std::move(head));
}

}  // namespace hearth::http
