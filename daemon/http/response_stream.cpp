// Streams of OpenAI's responses API.

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "daemon/http/answer_parts.h"

namespace hearth::http {
namespace {

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

}  // namespace

std::unique_ptr<AnswerWriter> make_response_stream(const Call& call, Head head) {
  return std::make_unique<ResponseStream>(call, std::move(head));
}

}  // namespace hearth::http
