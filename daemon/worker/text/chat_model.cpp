#include "daemon/worker/text/chat_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "daemon/worker/text/constraint_cache.h"
#include "daemon/worker/text/tools_as_text.h"
#include "ipc/wire/json.h"
#include "kernels/base/random.h"

namespace hearth::worker {
namespace {

using ipc::Json;

Error wrong(std::string_view field, const std::string& what) {
  return Error::invalid(fmt::format("{}: {}", field, what), std::string(field));
}

Error unsupported_tools(const std::string& what) {
  return Error::unsupported("tools: " + what, "tools");
}

Json parsed(const std::string& text) { return Json::parse(text, nullptr, false); }

/// The functions of `tools`, each {"type":"function","function":{"name":...,"parameters":{...}}}.
/// Takes `strict` out of them, which templates do not need.
Result<std::vector<engine::CallableFunction>> take_functions(Json& list) {
  std::vector<engine::CallableFunction> out;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string at = fmt::format("[{}]", i);
    Json& tool = list[i];
    const auto type = tool.find("type");
    if (type != tool.end() && *type != "function") {
      return unsupported_tools(at + ".type: only functions are supported");
    }
    const auto function = tool.find("function");
    if (function == tool.end() || !function->is_object()) {
      return wrong("tools", at + ".function: absent, want an object");
    }
    const auto name = function->find("name");
    if (name == function->end() || !name->is_string() ||
        !models::is_function_name(name->get_ref<const std::string&>())) {
      return wrong("tools", at + ".function.name: want 1 to 64 letters, digits, _, - or ., and "
                                 "neither auto, none nor required");
    }
    const std::string& text = name->get_ref<const std::string&>();
    if (std::ranges::find(out, text, &engine::CallableFunction::name) != out.end()) {
      return wrong("tools", at + ".function.name: the same as another's");
    }
    bool strict = false;
    if (const auto wanted = function->find("strict"); wanted != function->end()) {
      if (!wanted->is_boolean() && !wanted->is_null()) {
        return wrong("tools", at + ".function.strict: want true or false");
      }
      strict = *wanted == true;
    }
    const auto parameters = function->find("parameters");
    const bool some = parameters != function->end() && !parameters->is_null();
    if (some && !parameters->is_object()) {
      return wrong("tools", at + ".function.parameters: want a JSON schema");
    }
    out.push_back({text,
                   some && !parameters->empty()
                       ? ipc::dump_json(*parameters)
                       : R"({"type":"object","properties":{},"additionalProperties":false})",
                   strict});
    function->erase("strict");
  }
  return out;
}

// Converts a call's arguments to the form the template needs, an object or its text.
void put_arguments(Json& call, bool as_text) {
  const auto function = call.find("function");
  if (function == call.end() || !function->is_object()) return;
  const auto arguments = function->find("arguments");
  if (arguments == function->end()) return;
  if (as_text) {
    if (!arguments->is_string()) *arguments = ipc::dump_json(*arguments);
    return;
  }
  if (!arguments->is_string()) return;
  Json object = parsed(arguments->get_ref<const std::string&>());
  if (object.is_object()) *arguments = std::move(object);
}

}  // namespace

std::string call_id(uint64_t key, uint32_t sample, int32_t index) {
  constexpr std::string_view kLetters =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  uint64_t value =
      splitmix(key ^ splitmix((uint64_t{sample} << 32 | static_cast<uint32_t>(index)) + 1));
  std::string out;
  for (int i = 0; i < 9; ++i) {
    out += kLetters[value % kLetters.size()];
    value /= kLetters.size();
  }
  return out;
}

const models::AnswerFormat& ChatModel::format(bool with_tools) {
  auto& known = formats_[with_tools ? 1 : 0];
  if (!known) {
    known =
        models::find_answer_format(*templates_, with_tools, models::chat_surroundings(tokenizer_));
  }
  return *known;
}

std::optional<int32_t> ChatModel::control_token(const std::string& mark) const {
  for (const int32_t id : tokenizer_.encode(mark, {.add_bos = false, .parse_special = true})) {
    if (tokenizer_.entry(id) == mark && tokenizer_.is_control(id)) return id;
  }
  return std::nullopt;
}

Result<std::string> ChatModel::reasoning_members(const std::string& reasoning,
                                                 const models::AnswerFormat& format) const {
  if (reasoning == "auto") return std::string();
  if (reasoning == "off" && !format.reasoning_off) {
    return Error::unsupported(
        "reasoning: met off, but the model's chat template has no way to ask for an answer without "
        "reasoning",
        "reasoning");
  }
  const std::string& members = reasoning == "off" ? *format.reasoning_off : format.reasoning_on;
  return members.empty() ? members : members + ",";
}

// Converts calls to the template's form; a result's message gets the name of the function called.
Result<std::string> ChatModel::messages_for_template(const std::string& messages,
                                                     const models::AnswerFormat& format) const {
  Json list = parsed(messages);
  std::map<std::string, std::string> called;
  for (Json& message : list) {
    const auto calls = message.find("tool_calls");
    if (calls != message.end() && calls->is_array() && !calls->empty()) {
      for (Json& call : *calls) {
        if (!call.is_object()) return wrong("messages", "tool_calls: want objects");
        put_arguments(call, format.arguments_as_text);
        const Json& function = call.contains("function") ? call["function"] : call;
        const bool named = function.is_object() && function.contains("name") &&
                           function["name"].is_string() && call.contains("id") &&
                           call["id"].is_string();
        if (named) called[call["id"].get<std::string>()] = function["name"].get<std::string>();
      }
      const auto content = message.find("content");
      if (format.null_content && (content == message.end() || *content == "")) {
        message["content"] = nullptr;
      }
    }
    const auto answered = message.find("tool_call_id");
    if (answered != message.end() && answered->is_string() && !message.contains("name")) {
      const auto known = called.find(answered->get_ref<const std::string&>());
      if (known != called.end()) message["name"] = known->second;
    }
  }
  return ipc::dump_json(list);
}

Result<void> ChatModel::read_tools(const ipc::GenerateRequest& request,
                                   const models::AnswerFormat& format, Json* tools,
                                   ChatRequest* out) {
  HEARTH_ASSIGN_OR_RETURN(auto functions, take_functions(*tools));
  if (format.tools == nullptr) {
    return unsupported_tools(format.problem + "; tool_form: hermes adds one to the prompt");
  }
  if (!request.grammar.empty() || !request.regex.empty()) {
    return unsupported_tools("met them and a grammar or regex for the answer, want one");
  }
  const std::string& choice = request.tool_choice;
  const bool must = choice != "auto";
  out->shape.tools = format.tools;
  for (const auto& function : functions) {
    out->shape.functions.push_back({function.name, engine::string_parameters(function.schema)});
  }
  // A named function is called once.
  out->shape.one_call = !request.parallel_tool_calls || (must && choice != "required");
  out->shape.must_call = must;
  const bool by_schema = !must && !request.json_schema.empty();
  const bool some_strict = std::ranges::any_of(functions, &engine::CallableFunction::strict);
  if (!must && !by_schema && !some_strict) return {};
  if (request.ignore_eos && (must || by_schema || out->shape.one_call)) {
    return wrong("ignore_eos", "an answer that calls or follows a schema ends where that does");
  }
  if (must && choice != "required") {
    std::erase_if(functions, [&choice](const auto& each) { return each.name != choice; });
    if (functions.empty()) {
      return wrong("tool_choice",
                   fmt::format("met {}, want auto, none, required or the name of a function",
                               ipc::printable(choice)));
    }
  }
  out->calls.emplace();
  out->calls->format = format.tools;
  out->calls->functions = std::move(functions);
  out->calls->among_text = !must && !by_schema;
  if (by_schema) out->calls->answer_schema = request.json_schema;
  out->calls->relax_answer = by_schema && request.relax_schema;
  out->calls->one_call = out->shape.one_call;
  return {};
}

// An effort changes the prompt of a template that reads it, whether or not hearth knows its marks.
bool ChatModel::reasoning_in_vain(const ipc::GenerateRequest& request,
                                  const models::AnswerFormat& format) const {
  if (format.channels || !format.reasoning.empty()) return false;
  constexpr std::string_view kEffort = "reasoning_effort";
  const bool effort = request.template_kwargs.text.find(kEffort) != std::string::npos;
  if (request.reasoning != "on" && request.reasoning_budget == 0 && !effort) return false;
  const std::string_view source = templates_->source(templates_->name_for(!request.tools.empty()));
  return source.find(kEffort) == std::string_view::npos;
}

Result<ChatRequest> ChatModel::read(const ipc::GenerateRequest& request) {
  ChatRequest out;
  const std::string& choice = request.tool_choice;
  out.with_tools = !request.tools.empty() && choice != "none";
  if (choice != "auto" && choice != "none" && !out.with_tools) {
    return wrong("tool_choice", fmt::format("met {} without tools", ipc::printable(choice)));
  }
  const std::string& form = request.tool_form == "auto" ? tool_form_ : request.tool_form;
  const bool as_text = out.with_tools && form == "hermes" && format(true).tools == nullptr;
  models::AnswerFormat known = format(out.with_tools && !as_text);
  if (as_text) known.tools = models::find_tool_format("hermes");
  out.marks = known.marks();
  out.no_reasoning = reasoning_in_vain(request, known);
  const bool bound = !out.with_tools && text_rule(request).has_value();
  Json tools;
  if (out.with_tools) {
    tools = parsed(request.tools.text);
    HEARTH_TRY(read_tools(request, known, &tools, &out));
  }
  // Output bound by a schema or grammar has no marks.
  if (!bound) {
    out.shape.reasoning = known.reasoning;
    out.shape.channels = known.channels;
  }

  HEARTH_ASSIGN_OR_RETURN(const std::string switches, reasoning_members(request.reasoning, known));
  if (request.reasoning == "off" && !known.reasoning.empty()) {
    const std::vector<int32_t> begin =
        tokenizer_.encode(known.reasoning.begin, {.add_bos = false, .parse_special = true});
    if (begin.size() == 1) out.banned = begin.front();
  }

  // Of duplicate members the last one counts, so the template's variables cannot replace the
  // messages.
  out.conversation += '{';
  if (!request.template_kwargs.empty()) {
    const std::string& members = request.template_kwargs.text;
    out.conversation += members.substr(1, members.size() - 2) + ",";
  }
  out.conversation += switches;
  std::string messages = request.messages.text;
  const bool plain = request.tools.text.find("\"strict\"") == std::string::npos;
  const std::string text = plain ? request.tools.text : ipc::dump_json(tools);
  if (out.with_tools && !as_text) out.conversation += "\"tools\":" + text + ",";
  if (messages.find("\"tool_calls\"") != std::string::npos) {
    HEARTH_ASSIGN_OR_RETURN(messages, messages_for_template(messages, known));
  }
  if (as_text) {
    HEARTH_ASSIGN_OR_RETURN(const Json rewritten, with_tools_as_text(parsed(messages), tools));
    messages = ipc::dump_json(rewritten);
  }
  out.conversation += "\"messages\":" + messages + "}";
  return out;
}

std::shared_ptr<const AnswerReading> ChatModel::reading(const ChatRequest& request,
                                                        const std::string& prompt_text,
                                                        const std::vector<int32_t>& prompt,
                                                        uint64_t seed) {
  if (!request.shape.any()) return nullptr;
  auto out = std::make_shared<AnswerReading>();
  out->shape = request.shape;
  out->shape.reasoning_open = models::reasoning_is_open(out->shape.reasoning, prompt_text);
  for (const std::string& mark : request.marks) {
    if (const auto id = control_token(mark)) out->marks.emplace(*id, mark);
  }
  // Computed from everything that determines the answer, so that a resumed request produces the
  // same ids, and the next turn of a conversation different ones.
  out->call_key = splitmix(seed);
  for (const int32_t id : prompt)
    out->call_key = splitmix(out->call_key + static_cast<uint32_t>(id));
  return out;
}

// Some tokenizers add a space to a text's beginning. A line break is always a token of its own
// there, so what follows one is encoded as within a text.
std::vector<int32_t> ChatModel::tokens_within(const std::string& text) const {
  const models::EncodeOptions options{.add_bos = false, .parse_special = true};
  if (tokenizer_.adds_space_prefix()) {
    std::vector<int32_t> ids = tokenizer_.encode("\n" + text, options);
    const auto line = std::ranges::find_if(
        ids, [this](int32_t id) { return tokenizer_.piece(id).ends_with('\n'); });
    if (line != ids.end() && line + 1 != ids.end()) return {line + 1, ids.end()};
  }
  return tokenizer_.encode(text, options);
}

std::shared_ptr<const engine::ReasoningBound> ChatModel::reasoning_bound(
    const AnswerReading& reading, int32_t max_tokens) const {
  const models::AnswerShape& shape = reading.shape;
  if (!shape.channels && shape.reasoning.empty()) return nullptr;
  auto out = std::make_shared<engine::ReasoningBound>();
  out->begin = shape.channels ? "<|channel|>analysis<|message|>" : shape.reasoning.begin;
  out->end = shape.channels ? "<|end|>" : shape.reasoning.end;
  out->open = shape.reasoning_open;
  out->max_tokens = max_tokens > 0 ? max_tokens : INT32_MAX;
  // A channel is followed by that of the answer. A call that must be made chooses its own.
  std::string closing = out->end;
  if (shape.channels && !shape.must_call)
    closing += "<|start|>assistant<|channel|>final<|message|>";
  out->closing = tokens_within(closing);
  out->marks.assign(reading.marks.begin(), reading.marks.end());
  out->tokenizer = &tokenizer_;
  return out;
}

std::vector<int32_t> ChatModel::end_ids(const AnswerReading& reading,
                                        std::vector<int32_t> own) const {
  std::erase_if(own, [&reading](int32_t id) { return reading.marks.contains(id); });
  if (!reading.shape.channels) return own;
  for (const std::string_view end : models::find_tool_format("harmony")->ends) {
    const auto id = control_token(std::string(end));
    if (id && std::ranges::find(own, *id) == own.end()) own.push_back(*id);
  }
  return own;
}

}  // namespace hearth::worker
