// POST /v1/messages of the Anthropic API

#include "daemon/http/requests/field_lists.h"
#include "daemon/http/requests/volatile_lines.h"

namespace hearth::http {
namespace {

/// The thinking of one message, and the model that wrote it.
struct Thinking {
  std::string text{};
  std::string model{};  ///< fingerprint; "" without text
};

/// All thinking of this daemon's answers is signed. Other thinking is left out, as nothing shows
/// that a model here wrote it; Anthropic's own servers refuse a block without a signature.
void take_thinking_block(Members& block, const PromptRules& rules, Thinking* thinking) {
  std::string text = block.text("thinking").value_or("");
  const std::string signature = block.text("signature").value_or("");
  if (!ReasoningSeal::is_ours(signature)) return block.ignore("thinking.signature");
  const auto model = rules.seal ? rules.seal->check(signature, text) : std::nullopt;
  if (!model) {
    return block.invalid("signature",
                         "is not the one that this daemon gave this user with this text");
  }
  if (!thinking->model.empty() && thinking->model != *model) {
    return block.invalid("signature", "met thinking of two models in one message, want one");
  }
  thinking->model = *model;
  thinking->text += text;
}

/// The blocks of one message: text; for the user, results of calls, each of which becomes a
/// separate message; for the assistant, calls and thinking.
void take_blocks(Json& blocks, const std::string& role, const std::string& path,
                 const PromptRules& rules, Members& in, Json& messages) {
  Json message = {{"role", role}, {"content", ""}};
  std::string text;
  Thinking thinking;
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
      take_parsed(block);
      block.only("citations", {Json::array()});
      text += piece.value_or("");
      kept.add(keep_s, text.size());
      any = true;
    } else if (type == "tool_result" && role == "user") {
      const auto id = block.text("tool_use_id");
      if (!id) block.invalid("tool_use_id", "absent, want a string");
      std::optional<std::string> result;
      Kept mark;
      if (Json* content = block.take("content")) {
        result = text_of(*content, {"text"}, at + ".content", in, &mark);
      }
      if (block.flag("is_error", false)) block.ignore("tool_result.is_error");
      messages.push_back({{"role", "tool"},
                          {"tool_call_id", id.value_or("")},
                          {"content", std::move(result).value_or("")}});
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
      // Called by the model itself, not by a program of the server's.
      block.only("caller", {Json{{"type", "direct"}}});
      kept.add(keep_s, 0);
      any = true;
    } else if (type == "thinking" && role == "assistant") {
      take_thinking_block(block, rules, &thinking);
      any = true;
    } else if (type == "redacted_thinking" && role == "assistant") {
      block.text("data");
      block.ignore("redacted_thinking");
      any = true;
    } else {
      block.unsupported("type", fmt::format("'{}' is not supported here", ipc::printable(type)));
    }
    block.check_unknown();
    in.join(block);
  }
  if (!any) return;
  message["content"] = std::move(text);
  if (!thinking.text.empty()) {
    message["reasoning_content"] = std::move(thinking.text);
    message[ipc::kReasoningOf] = std::move(thinking.model);
  }
  kept.write_to(message);
  messages.push_back(std::move(message));
}

void take_conversation(Members& in, const PromptRules& rules, Json& messages) {
  Json* const list = in.take("messages");
  if (list == nullptr || !list->is_array() || list->empty()) {
    return in.wrong("messages", list == nullptr ? Json() : *list, "a list of messages");
  }
  for (size_t i = 0; i < list->size() && !in.failed(); ++i) {
    const std::string path = fmt::format("messages[{}]", i);
    if (!(*list)[i].is_object()) {
      return in.wrong(path, (*list)[i], "an object");
    }
    Members message((*list)[i], path + ".");
    const std::string role = message.text("role").value_or("");
    if (role != "user" && role != "assistant" && role != "system") {
      message.invalid("role", "want user, assistant or system");
    }
    Json* content = message.take("content");
    if (content == nullptr) {
      message.invalid("content", "absent, want a string");
    } else if (content->is_array()) {
      take_blocks(*content, role, path + ".content", rules, in, messages);
    } else if (auto text = text_of(*content, {"text"}, path + ".content", in)) {
      messages.push_back({{"role", role}, {"content", *std::move(text)}});
    }
    Kept kept;
    kept.add(take_cache_control(message), 0);
    message.check_unknown();
    in.join(message);
    if (!messages.empty()) kept.write_to(messages.back());
    if (i + 1 == list->size() && role == "assistant") {
      in.unsupported("messages",
                     "the last is the assistant's; going on from it is not "
                     "supported");
    }
  }
}

/// Edits that a server applies to the conversation. Only one that keeps all is accepted.
void take_context_management(Members& in) {
  Json* const management = in.take("context_management");
  if (management == nullptr) return;
  if (!management->is_object()) return in.wrong("context_management", *management, "an object");
  Members inner(*management, "context_management.");
  Json* const edits = inner.take("edits");
  if (edits != nullptr && !edits->is_array()) {
    inner.wrong("edits", *edits, "a list");
  } else if (edits != nullptr) {
    for (size_t i = 0; i < edits->size(); ++i) {
      const Json& edit = (*edits)[i];
      const Json keep = edit.is_object() ? edit.value("keep", Json()) : Json();
      const bool keeps_all = keep == "all" || keep == Json{{"type", "all"}};
      if (keeps_all && edit.value("type", Json()) == "clear_thinking_20251015") continue;
      inner.unsupported(fmt::format("edits[{}]", i),
                        "of edits only clear_thinking_20251015 with keep: all is supported");
      break;
    }
    if (!edits->empty()) inner.ignore("context_management.edits");
  }
  inner.check_unknown();
  in.join(inner);
}

/// {"format":{"type":"json_schema","schema":{...}},"effort":"high"}
void take_output_config(Members& in, Json& request) {
  Json* const format = in.take("output_format");  // its older name
  if (format != nullptr) take_format(in, "output_format", *format, false, request);
  Json* const config = in.take("output_config");
  if (config == nullptr) return;
  if (!config->is_object()) return in.wrong("output_config", *config, "an object");
  Members inner(*config, "output_config.");
  if (Json* inner_format = inner.take("format")) {
    take_format(in, "output_config.format", *inner_format, false, request);
  }
  // It applies to the whole answer, so it does not switch reasoning on or off.
  if (const auto effort = inner.text("effort")) {
    if (!is_effort(*effort)) {
      inner.invalid("effort", "want low, medium, high, xhigh or max");
    } else {
      pass_effort(*effort, request);
      inner.note_reasoning("output_config.effort");
    }
  }
  if (inner.take("task_budget") != nullptr) inner.ignore("output_config.task_budget");
  inner.check_unknown();
  in.join(inner);
}

}  // namespace

Result<Call> parse_messages(Json& body, const PromptRules& rules) {
  Call call{.api = Api::kMessages};
  ipc::LargeJson request(new_request());
  HEARTH_TRY(rename_foreign(body, set_of(call.api)));
  call.volatile_lines = leave_out_volatile_lines(rules, call.api, body);
  Members in(body);
  Json messages = Json::array();
  if (Json* system = in.take("system")) {
    Kept kept;
    if (auto text = text_of(*system, {"text"}, "system", in, &kept)) {
      messages.push_back({{"role", "system"}, {"content", *std::move(text)}});
      kept.write_to(messages.back());
    }
  }
  take_conversation(in, rules, messages);
  request["messages"] = std::move(messages);
  in.pass("model", request);
  in.pass("remote", request);
  in.pass("adapter", request);
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
  take_tools(in, ToolWords::kMessages, request, nullptr);
  take_kept_prompt(in, request);
  take_output_config(in, request);
  take_context_management(in);
  in.only("mcp_servers", {Json::array()});
  in.only("seed", {Json(-1)});  // absent, as in the other APIs
  take_ignored(in, set_of(call.api));
  take_reasoning(in, request);
  HEARTH_TRY(in.finish());
  call.ignored = in.ignored();
  call.about_reasoning = in.about_reasoning();
  call.seal = rules.seal;
  HEARTH_ASSIGN_OR_RETURN(call.request, decode(request, {{"stop", "stop_sequences"},
                                                         {"json_schema", "output_config"}}));
  return call;
}

}  // namespace hearth::http
