#include "models/template/chat_template.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/gguf/gguf_file.h"
#include "models/template/json.h"
#include "models/template/parser.h"
#include "models/template/renderer.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::models {
namespace {

constexpr std::string_view kTemplateKey = "tokenizer.chat_template";

/// What some files of RWKV have in place of a template: the name of this form.
constexpr std::string_view kWorldName = "rwkv-world";
constexpr std::string_view kWorldTemplate =
    "{%- set names = {'system': 'System', 'user': 'User', 'assistant': 'Assistant'} -%}"
    "{%- for message in messages if message.role in names -%}"
    "{{- names[message.role] + ': ' + message.content|trim + '\\n\\n' -}}"
    "{%- endfor -%}"
    "{%- if messages and messages[-1].role == 'user' -%}{{- 'Assistant:' -}}{%- endif -%}";

using jinja::Kind;
using jinja::Value;

Error wrong_message(std::string_view field, std::string_view what) {
  return Error::invalid(fmt::format("{}: {}", field, what), std::string(field));
}

/// The roles of OpenAI's and Anthropic's APIs, and those that published templates know.
constexpr std::string_view kRoles[] = {"assistant", "developer", "function", "ipython",    "model",
                                       "system",    "tool",      "user",     "observation"};

/// Makes a known role the template's own word.
void trust_role(jinja::Dict& message) {
  const auto known = std::ranges::find(kRoles, message.find("role")->text());
  if (known != std::end(kRoles)) message.set("role", Value::of(*known));
}

Result<void> check_messages(const Value* messages) {
  if (messages == nullptr) return wrong_message("messages", "absent, want an array of objects");
  if (messages->kind() != Kind::kList) return wrong_message("messages", "want an array of objects");
  for (size_t i = 0; i < messages->list().items.size(); ++i) {
    const Value& each = messages->list().items[i];
    if (!each.is_dict()) return wrong_message("messages", fmt::format("[{}] is not an object", i));
    const Value* role = each.dict().find("role");
    if (role == nullptr || !role->is_string()) {
      return wrong_message("messages", fmt::format("[{}] has no role, a string", i));
    }
  }
  return {};
}

}  // namespace

struct ChatTemplate::Parsed {
  jinja::Body body;
};

Result<ChatTemplate> ChatTemplate::compile(std::string_view source) {
  HEARTH_ASSIGN_OR_RETURN(jinja::Body body, jinja::parse_template(source));
  auto parsed = std::make_shared<Parsed>();
  parsed->body = std::move(body);
  ChatTemplate out;
  out.parsed_ = std::move(parsed);
  return out;
}

Result<TracedText> ChatTemplate::render(std::string_view conversation,
                                        const ChatSurroundings& surroundings) const {
  jinja::Renderer renderer({}, surroundings.now);
  HEARTH_ASSIGN_OR_RETURN(const Value input, jinja::parse_json(renderer.arena(), conversation));
  if (!input.is_dict()) {
    return Error::invalid("a conversation is a JSON object", "messages");
  }
  const Value* const messages = input.dict().find("messages");
  HEARTH_TRY(check_messages(messages));
  for (const Value& each : messages->list().items) trust_role(each.dict());
  if (!surroundings.bos_token.empty()) {
    renderer.set_global("bos_token", Value::of(std::string_view(surroundings.bos_token)));
  }
  if (!surroundings.eos_token.empty()) {
    renderer.set_global("eos_token", Value::of(std::string_view(surroundings.eos_token)));
  }
  renderer.set_global("add_generation_prompt", Value::of(true));
  // Templates test whether these are none, not whether they are defined.
  renderer.set_global("tools", Value::none());
  renderer.set_global("documents", Value::none());
  for (const auto& [key, value] : input.dict().entries()) renderer.set_global(key.text(), value);
  Result<TracedText> out = renderer.render(parsed_->body);
  if (out.ok()) return out;
  Error error = out.take_error();
  if (error.field.empty()) error.field = "messages";
  return error;
}

ChatSurroundings chat_surroundings(const Tokenizer& tokenizer) {
  ChatSurroundings out;
  if (tokenizer.bos()) out.bos_token = tokenizer.entry(*tokenizer.bos());
  if (tokenizer.eos()) out.eos_token = tokenizer.entry(*tokenizer.eos());
  const std::time_t now = std::time(nullptr);
  ::localtime_r(&now, &out.now);
  return out;
}

ChatTemplates ChatTemplates::load(const GgufFile& file) {
  ChatTemplates out;
  for (const GgufEntry& entry : file.metadata()) {
    if (!entry.key.starts_with(kTemplateKey)) continue;
    std::string_view name = entry.key.substr(kTemplateKey.size());
    if (!name.empty() && name.front() != '.') continue;
    const auto text = file.get<std::string_view>(entry.key);
    if (!text.ok()) continue;
    if (!name.empty()) name.remove_prefix(1);
    out.sources_.push_back(
        {std::string(name), std::string(*text == kWorldName ? kWorldTemplate : *text)});
  }
  std::ranges::stable_sort(out.sources_, {}, [](const Source& s) { return !s.name.empty(); });
  return out;
}

std::vector<std::string> ChatTemplates::names() const {
  std::vector<std::string> out;
  for (const Source& source : sources_) out.push_back(source.name);
  return out;
}

std::string_view ChatTemplates::name_for(bool with_tools) const {
  return with_tools && !source("tool_use").empty() ? "tool_use" : "";
}

std::string_view ChatTemplates::source(std::string_view name) const {
  const auto found = std::ranges::find(sources_, name, &Source::name);
  return found == sources_.end() ? std::string_view() : std::string_view(found->text);
}

Result<TracedText> ChatTemplates::render(std::string_view name, std::string_view conversation,
                                         const ChatSurroundings& surroundings) const {
  const auto find = [this](std::string_view wanted) {
    return std::ranges::find(sources_, wanted, &Source::name);
  };
  if (sources_.empty()) {
    return Error::not_found(
        "the model has no chat template (tokenizer.chat_template): give it a prompt "
        "instead of messages",
        "messages");
  }
  auto source = find(name);
  if (name.empty() && find("tool_use") != sources_.end()) {
    jinja::Arena arena;
    const auto input = jinja::parse_json(arena, conversation);
    const Value* const tools =
        input.ok() && input->is_dict() ? input->dict().find("tools") : nullptr;
    if (tools != nullptr && jinja::truth(*tools)) source = find("tool_use");
  }
  if (source == sources_.end()) {
    return Error::not_found(fmt::format("the model has no chat template '{}'; it has: '{}'",
                                        printable(name), fmt::join(names(), "', '")),
                            "template");
  }
  HEARTH_ASSIGN_OR_RETURN(const ChatTemplate compiled, ChatTemplate::compile(source->text));
  return compiled.render(conversation, surroundings);
}

}  // namespace hearth::models
