// Streams of OpenAI's responses API: output items in sequence.

#include <fmt/core.h>

#include <iterator>
#include <utility>

#include "daemon/http/answers/answer_parts.h"

namespace hearth::http {
namespace {

class ResponseStream final : public AnswerWriter {
 public:
  ResponseStream(const Call& call, Head head) : call_(call), head_(std::move(head)) {}

  void written_by(std::string_view fingerprint) override { head_.fingerprint = fingerprint; }
  void started(const ipc::StartedEvent& event, std::string* out) override {
    head_.model = event.model;
    const Json response = response_json(call_, head_, nullptr, nullptr);
    send("response.created", {{"response", response}}, out);
    send("response.in_progress", {{"response", response}}, out);
  }

  void delta(uint32_t, std::string_view text, std::string_view, std::string* out) override {
    if (text.empty()) return;
    enter(Item::kMessage, out);
    sample_.text += text;
    text_ += text;
    say_delta("response.output_text.delta", text, out);
  }
  void reasoning(uint32_t, std::string_view text, std::string* out) override {
    enter(Item::kReasoning, out);
    sample_.reasoning += text;
    text_ += text;
    say_delta("response.reasoning_text.delta", text, out);
  }
  void call(uint32_t, const ipc::ToolCall& call, std::string* out) override {
    leave(false, out);
    sample_.calls.push_back({call, {}, call_.is_custom(call.name)});
    enter(Item::kCall, out);
  }
  void arguments(uint32_t, std::string_view json, std::string* out) override {
    if (item_ != Item::kCall) return;
    sample_.calls.back().arguments += json;
    if (!sample_.calls.back().custom)
      say_delta("response.function_call_arguments.delta", json, out);
  }

  void sample_done(const ipc::SampleDoneEvent& event, std::string*) override {
    sample_.reason = event.reason;
  }

  void done(const ipc::DoneEvent& event, std::string* out) override {
    const bool cut = sample_.reason == "length";
    if (index_ == 0 && item_ == Item::kNone) enter(Item::kMessage, out);
    leave(cut, out);
    Json response = response_json(call_, head_, &sample_, &event);
    send(cut ? "response.incomplete" : "response.completed", {{"response", response}}, out);
    if (call_.store) kept_ = kept_response(call_, head_, std::move(response));
  }
  KeptResponse take_kept() override { return std::move(kept_); }

  void failed(const Error& error, std::string* out) override {
    send("error",
         {{"code", std::string(name(error.code))}, {"message", error.message}, {"param", nullptr}},
         out);
  }

 private:
  enum class Item { kNone, kMessage, kReasoning, kCall };

  void enter(Item item, std::string* out) {
    if (item_ == item) return;
    leave(false, out);
    item_ = item;
    text_.clear();
    Json begin = item_json("in_progress");
    Json place = {{"item_id", begin["id"]}, {"output_index", index_}};
    if (item != Item::kCall) begin["content"] = Json::array();
    send("response.output_item.added", {{"output_index", index_}, {"item", begin}}, out);
    if (item != Item::kCall) {
      place["content_index"] = 0;
      Json part = place;
      part["part"] = part_json();
      send("response.content_part.added", part, out);
    }
    place_ = place;
    around_ = ipc::dump_json(place);
    around_.erase(0, 1);  // without its opening brace: these members follow others
    around_.pop_back();
  }

  void leave(bool cut, std::string* out) {
    if (item_ == Item::kNone) return;
    Json last = place_;
    switch (item_) {
      case Item::kNone: break;
      case Item::kMessage:
        last["text"] = text_;
        last["logprobs"] = Json::array();
        send("response.output_text.done", last, out);
        break;
      case Item::kReasoning:
        last["text"] = text_;
        send("response.reasoning_text.done", last, out);
        break;
      case Item::kCall:
        if (sample_.calls.back().custom) {
          const std::string input = custom_input(sample_.calls.back());
          if (!input.empty()) say_delta("response.custom_tool_call_input.delta", input, out);
          last["input"] = input;
          send("response.custom_tool_call_input.done", last, out);
          break;
        }
        last["name"] = sample_.calls.back().call.name;
        last["arguments"] = sample_.calls.back().arguments;
        send("response.function_call_arguments.done", last, out);
        break;
    }
    if (item_ != Item::kCall) {
      Json part = place_;
      part["part"] = part_json();
      send("response.content_part.done", part, out);
    }
    send("response.output_item.done",
         {{"output_index", index_}, {"item", item_json(cut ? "incomplete" : "completed")}}, out);
    item_ = Item::kNone;
    ++index_;
  }

  Json item_json(std::string_view status) const {
    switch (item_) {
      case Item::kNone:
      case Item::kMessage: break;
      case Item::kReasoning: return response_reasoning(call_, head_, text_, status);
      case Item::kCall: return response_call(head_, sample_.calls.back(), status);
    }
    return response_message(head_, text_, status);
  }
  Json part_json() const {
    if (item_ == Item::kReasoning) return {{"type", "reasoning_text"}, {"text", text_}};
    return {{"type", "output_text"}, {"text", text_}, {"annotations", Json::array()}};
  }

  void send(std::string_view type, const Json& members, std::string* out) {
    Json data = {{"type", std::string(type)}, {"sequence_number", sequence_++}};
    for (const auto& [key, value] : members.items()) data[key] = value;
    append_event(type, data, out);
  }
  void say_delta(std::string_view type, std::string_view text, std::string* out) {
    fmt::format_to(std::back_inserter(*out),
                   "event: {}\ndata: "
                   "{{\"type\":\"{}\",\"sequence_number\":{},{},{}\"delta\":",
                   type, type, sequence_++, around_,
                   item_ == Item::kMessage ? "\"logprobs\":[]," : "");
    append_quoted(text, out);
    *out += "}\n\n";
  }

  const Call call_;
  Head head_;
  Sample sample_;
  Item item_ = Item::kNone;
  int32_t index_ = 0;
  std::string text_;  // of the current item
  Json place_;
  std::string around_;
  int64_t sequence_ = 0;
  KeptResponse kept_;
};

}  // namespace

std::unique_ptr<AnswerWriter> make_response_stream(const Call& call, Head head) {
  return std::make_unique<ResponseStream>(call, std::move(head));
}

}  // namespace hearth::http
