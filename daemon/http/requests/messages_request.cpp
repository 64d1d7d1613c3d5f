// POST /v1/messages of the Anthropic API

#include "daemon/http/requests/field_lists.h"

namespace hearth::http {
namespace {

/// The blocks of one message: text; for the user, results of calls, each of which becomes a
/// separate message; for the assistant, calls and thinking.
void take_blocks(Json& blocks, const std::string& role, const std::string& path, Members& in,
                 Json& messages) {
  Json message = {{"role", role}, {"content", ""}};
  std::string text, thinking;
  Kept kept;  // of the message itself
  bool any = blocks.empty();
  for (size_t i = 0; i < blocks.size() && !in.failed(); ++i) {
    const std::string at = fmt::format("{}[{}]", path, i);
    if (!blocks[i].is_object()) return in.wrong(at, blocks[i], "an object");
    Members block(blocks[i], at + ".");
    const std::string type = block.text("type").value_or("text");
    const int64_t keep_s = take_cache_control(block);
    if (type == "text") {
      const auto piece = block.text("text");
      if (!piece) block.invalid("text", "absent, want a string");
      block.only("citations", {Json::array()});
      text += piece.value_or("");
      kept.add(keep_s, text.size());
      any = true;
    } else if (type == "tool_result" && role == "user") {
      const auto id = block.text("tool_use_id");
      if (!id) block.invalid("tool_use_id", "absent, want a string");
      std::optional<std::string> result;
      if (Json* content = block.take("content")) {
        result = text_of(*content, {"text"}, at + ".content", in);
      }
      block.flag("is_error", false);  // the content conveys it
      messages.push_back({{"role", "tool"},
                          {"tool_call_id", id.value_or("")},
                          {"content", std::move(result).value_or("")}});
      Kept mark;
      mark.add(keep_s, 0);
      mark.write_to(messages.back());
    } else if (type == "tool_use" && role == "assistant") {
      const auto id = block.text("id"), name = block.text("name");
      if (!id) block.invalid("id", "absent, want a string");
      if (!name) block.invalid("name", "absent, want a string");
      Json* input = block.take("input");
      if (input != nullptr && !input->is_object()) block.wrong("input", *input, "an object");
      Json arguments = input == nullptr ? Json::object() : std::move(*input);
      size_t value_bytes = 0;  // an object was counted with the body
      message["tool_calls"].push_back(made_call(block, "input", id.value_or(""), name.value_or(""),
                                                std::move(arguments), &value_bytes));
      kept.add(keep_s, 0);
      any = true;
    } else if (type == "thinking" && role == "assistant") {
      thinking += block.text("thinking").value_or("");
      block.text("signature");
      any = true;
    } else if (type == "redacted_thinking" && role == "assistant") {
      block.text("data");  // made by another server, which alone can read it
      any = true;
    } else {
      block.unsupported("type", fmt::format("'{}' is not supported here", ipc::printable(type)));
    }
    block.check_unknown();
    in.take_error_of(block);
  }
  if (!any) return;
  message["content"] = std::move(text);
  if (!thinking.empty()) message["reasoning_content"] = std::move(thinking);
  kept.write_to(message);
  messages.push_back(std::move(message));
}

}  // namespace

Result<Call> parse_messages(Json& body) {
  Call call{.api = Api::kMessages};
  ipc::LargeJson request(new_request());
  HEARTH_TRY(rename_foreign(body, set_of(call.api)));
  Members in(body);
  Json messages = Json::array();
  if (Json* system = in.take("system")) {
    Kept kept;
    if (auto text = text_of(*system, {"text"}, "system", in, &kept)) {
      messages.push_back({{"role", "system"}, {"content", *std::move(text)}});
      kept.write_to(messages.back());
    }
  }
  Json* list = in.take("messages");
  if (list == nullptr || !list->is_array() || list->empty()) {
    in.wrong("messages", list == nullptr ? Json() : *list, "a list of messages");
  } else {
    for (size_t i = 0; i < list->size() && !in.failed(); ++i) {
      const std::string path = fmt::format("messages[{}]", i);
      if (!(*list)[i].is_object()) {
        in.wrong(path, (*list)[i], "an object");
        break;
      }
      Members message((*list)[i], path + ".");
      const std::string role = message.text("role").value_or("");
      if (role != "user" && role != "assistant") {
        message.invalid("role", "want user or assistant");
      }
      Json* content = message.take("content");
      if (content == nullptr) {
        message.invalid("content", "absent, want a string");
      } else if (content->is_array()) {
        take_blocks(*content, role, path + ".content", in, messages);
      } else if (auto text = text_of(*content, {"text"}, path + ".content", in)) {
        messages.push_back({{"role", role}, {"content", *std::move(text)}});
      }
      Kept kept;
      kept.add(take_cache_control(message), 0);
      message.check_unknown();
      in.take_error_of(message);
      if (!messages.empty()) kept.write_to(messages.back());
      if (i + 1 == list->size() && role == "assistant") {
        in.unsupported("messages",
                       "the last is the assistant's; going on from it is not "
                       "supported");
      }
    }
  }
  request["messages"] = std::move(messages);
  in.pass("model", request);
  request["clip_max_tokens"] = true;
  take_max_tokens(in, "max_tokens", request);
  if (!request.contains("max_tokens")) {
    in.invalid("max_tokens", "absent, want an integer");
  }
  in.pass("temperature", request);
  in.pass("top_p", request);
  in.pass("top_k", request);
  take_stop(in, "stop_sequences", request);
  call.stream = in.flag("stream", false);
  take_tools(in, ToolWords::kMessages, request);
  if (const int64_t keep_s = take_cache_control(in); keep_s > 0) request["cache_keep_s"] = keep_s;
  take_ignored(in, call);
  take_reasoning(in, call, request);
  HEARTH_TRY(in.finish());
  HEARTH_ASSIGN_OR_RETURN(call.request, decode(request, {{"stop", "stop_sequences"}}));
  return call;
}

}  // namespace hearth::http
