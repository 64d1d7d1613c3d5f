// POST /v1/responses

#include "daemon/http/requests/field_lists.h"
#include "daemon/http/requests/volatile_lines.h"

namespace hearth::http {
namespace {

/// The assistant message that the last items belong to, or a new one. Reasoning, text and calls are
/// separate items in this API, but one message for a template.
Json& assistant_message(Json& messages) {
  if (messages.empty() || messages.back()["role"] != "assistant") {
    messages.push_back({{"role", "assistant"}, {"content", ""}});
  }
  return messages.back();
}

void take_message(Members& item, Members& in, const std::string& path, Json& messages) {
  std::string role = item.text("role").value_or("");
  if (role == "developer") role = "system";
  if (role != "system" && role != "user" && role != "assistant") {
    item.invalid("role", "want system, developer, user or assistant");
  }
  Kept kept;
  std::optional<std::string> text;
  if (Json* content = item.take("content")) {
    text = text_of(*content, {"input_text", "output_text", "text"}, path + ".content", in, &kept);
  } else {
    item.invalid("content", "absent, want a string");
  }
  // Text that follows reasoning belongs to the same message; otherwise it is a new one.
  const bool continued =
      role == "assistant" && !messages.empty() && messages.back()["role"] == "assistant" &&
      messages.back()["content"] == "" && !messages.back().contains("tool_calls");
  if (continued) {
    messages.back()["content"] = std::move(text).value_or("");
  } else {
    messages.push_back({{"role", role}, {"content", std::move(text).value_or("")}});
  }
  kept.write_to(messages.back());
}

/// Its text is in `content`, or in a seal that this daemon made (reasoning_seal.h). Text without a
/// seal is the client's own, as the content of an assistant's message is: an item has a seal only
/// where its request asked for one, and clients send items back as they got them.
void take_reasoning_item(Members& item, const std::string& path, const PromptRules& rules,
                         Members& in, Json& messages) {
  item.take("summary");
  std::optional<ReasoningSeal::Opened> opened;
  if (const auto sealed = item.text("encrypted_content"); sealed && !sealed->empty()) {
    if (rules.seal) opened = rules.seal->open(*sealed);
    if (!opened) {
      return item.invalid("encrypted_content", "is not what this daemon gave this user");
    }
  }
  std::optional<std::string> text;
  if (Json* content = item.take("content")) {
    text = text_of(*content, {"reasoning_text"}, path + ".content", in);
  }
  if (opened && !text.value_or("").empty() && *text != opened->text) {
    return item.invalid("content", "is not the text in encrypted_content");
  }
  if (!opened && !text) return;
  Json message = {{"role", "assistant"}, {"content", ""}};
  if (opened) message[ipc::kReasoningOf] = std::move(opened->model);
  message["reasoning_content"] = opened ? std::move(opened->text) : *std::move(text);
  messages.push_back(std::move(message));
}

/// Makes a list of the input, if it is a text.
void list_input(Json& body) {
  const auto input = body.find("input");
  if (input == body.end() || !input->is_string()) return;
  Json message = {{"type", "message"}, {"role", "user"}};
  message["content"] = std::move(*input);
  *input = Json::array();
  input->push_back(std::move(message));
}

/// Puts the items of the conversation so far before the request's own. Returns their number.
size_t put_before(Json& earlier, Json& body) {
  const auto input = body.find("input");
  if (input == body.end() || !input->is_array() || !earlier.is_array()) return 0;
  const size_t count = earlier.size();
  for (Json& item : *input) earlier.push_back(std::move(item));
  std::swap(*input, earlier);
  return count;
}

/// Copies the input as it was sent, if the answer is kept: reading it takes it apart.
void take_store(const PromptRules& rules, const Json& body, Call& call) {
  const auto store = body.find("store");
  const bool declined = store != body.end() && !store->is_null() && *store != true;
  call.store = rules.keeps_answers && !declined;
  const auto input = body.find("input");
  if (call.store && input != body.end()) call.kept_input = ipc::dump_json(*input);
}

/// `earlier`: items that are not the request's own, and which errors count apart.
void take_input(Members& in, size_t earlier, const PromptRules& rules, Json& messages) {
  Json* input = in.take("input");
  if (input == nullptr) {
    return in.invalid("input", "absent, want a string or a list");
  }
  if (input->is_string()) {
    messages.push_back({{"role", "user"}, {"content", std::move(*input)}});
    return;
  }
  if (!input->is_array() || input->empty()) return in.wrong("input", *input, "a string or a list");
  size_t value_bytes = 0;  // of the arguments of all calls
  for (size_t i = 0; i < input->size() && !in.failed(); ++i) {
    const std::string path = i < earlier ? fmt::format("previous_response_id[{}]", i)
                                         : fmt::format("input[{}]", i - earlier);
    if (!(*input)[i].is_object()) return in.wrong(path, (*input)[i], "an object");
    Members item((*input)[i], path + ".");
    item.text("id");
    item.text("status");
    const std::string type = item.text("type").value_or("message");
    if (type == "message") {
      take_message(item, in, path, messages);
    } else if (type == "function_call" || type == "custom_tool_call") {
      const auto id = item.text("call_id"), name = item.text("name");
      const bool custom = type == "custom_tool_call";
      auto text = item.text(custom ? "input" : "arguments");
      take_parsed(item);
      if (!id) item.invalid("call_id", "absent, want a string");
      if (!name) item.invalid("name", "absent, want a string");
      Json arguments = std::move(text).value_or(custom ? "" : "{}");
      if (custom) arguments = {{kCustomParameter, std::move(arguments)}};
      Json& message = assistant_message(messages);
      message["tool_calls"].push_back(made_call(item, "arguments", id.value_or(""),
                                                name.value_or(""), std::move(arguments),
                                                &value_bytes));
    } else if (type == "function_call_output" || type == "custom_tool_call_output") {
      const auto id = item.text("call_id");
      if (!id) item.invalid("call_id", "absent, want a string");
      std::optional<std::string> text;
      if (Json* output = item.take("output")) {
        text = text_of(*output, {"input_text", "output_text", "text"}, path + ".output", in);
      } else {
        item.invalid("output", "absent, want a string");
      }
      messages.push_back({{"role", "tool"},
                          {"tool_call_id", id.value_or("")},
                          {"content", std::move(text).value_or("")}});
    } else if (type == "reasoning") {
      take_reasoning_item(item, path, rules, in, messages);
    } else {
      item.unsupported("type",
                       "want message, reasoning, function_call, custom_tool_call or one of "
                       "their outputs");
    }
    item.check_unknown();
    in.join(item);
  }
}

/// What an answer contains in addition.
void take_include(Members& in, const PromptRules& rules, Call& call) {
  const Json* const include = in.take("include");
  if (include == nullptr) return;
  if (!include->is_array()) return in.wrong("include", *include, "a list");
  for (size_t i = 0; i < include->size(); ++i) {
    if ((*include)[i] != "reasoning.encrypted_content") {
      return in.unsupported(fmt::format("include[{}]", i),
                            fmt::format("met {}; only reasoning.encrypted_content is supported",
                                        describe((*include)[i])));
    }
    call.seal = rules.seal;
  }
}

}  // namespace

Result<Call> parse_responses(Json& body, const PromptRules& rules, Json* earlier) {
  Call call{.api = Api::kResponses};
  ipc::LargeJson request(new_request());
  HEARTH_TRY(rename_foreign(body, set_of(call.api)));
  list_input(body);
  take_store(rules, body, call);
  const size_t num_earlier = earlier == nullptr ? 0 : put_before(*earlier, body);
  call.volatile_lines = leave_out_volatile_lines(rules, call.api, body);
  Members in(body);
  Json messages = Json::array();
  if (auto instructions = in.text("instructions")) {
    call.instructions = *instructions;
    messages.push_back({{"role", "system"}, {"content", *std::move(instructions)}});
  }
  take_input(in, num_earlier, rules, messages);
  request["messages"] = std::move(messages);
  request["max_tokens"] = 0;
  request["clip_max_tokens"] = true;
  in.pass("model", request);
  in.pass("remote", request);
  in.pass("adapter", request);
  take_max_tokens(in, "max_output_tokens", request);
  in.pass("temperature", request);
  in.pass("top_p", request);
  call.stream = in.flag("stream", false);
  call.previous_response_id = in.text("previous_response_id").value_or("");
  if (in.flag("store", false) && !rules.keeps_answers) {
    in.unsupported("store", "answers are not kept here, so only false is supported");
  }
  if (Json* text = in.take("text")) {
    if (!text->is_object()) {
      in.wrong("text", *text, "an object");
    } else {
      Members inner(*text, "text.");
      if (Json* format = inner.take("format")) {
        take_format(in, "text.format", *format, false, request);
      }
      if (inner.text("verbosity")) inner.ignore("text.verbosity");
      inner.check_unknown();
      in.join(inner);
    }
  }
  take_tools(in, ToolWords::kResponses, request, &call.custom_tools);
  take_reasoning(in, request);
  take_ignored(in, set_of(call.api));
  take_retention(in, request);
  in.only("truncation", {"disabled"});
  in.only("seed", {Json(-1)});  // absent, as in the other APIs
  take_include(in, rules, call);
  in.only("top_logprobs", {Json(0)});
  HEARTH_TRY(in.finish());
  call.ignored = in.ignored();
  call.about_reasoning = in.about_reasoning();
  HEARTH_ASSIGN_OR_RETURN(call.request, decode(request, {{"max_tokens", "max_output_tokens"},
                                                         {"messages", "input"},
                                                         {"json_schema", "text"}}));
  return call;
}

}  // namespace hearth::http
