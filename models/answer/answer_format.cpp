#include "models/answer/answer_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "models/answer/answer_parser.h"
#include "models/template/text.h"

namespace hearth::models {
namespace {

using Type = AnswerPiece::Type;

// Words that occur in no template.
constexpr std::string_view kQuestion = "hearth-asks-7f3a";
constexpr std::string_view kFunction = "hearth_probe_9c1e";

std::string conversation(bool null_content, bool arguments_as_text, bool with_call) {
  std::string out = fmt::format(R"({{"messages":[{{"role":"user","content":"{}"}})", kQuestion);
  if (with_call) {
    out += fmt::format(
        R"(,{{"role":"assistant","content":{},"tool_calls":[{{"id":"pr0beCa11","type":"function",)"
        R"("function":{{"name":"{}","arguments":{}}}}}]}})",
        null_content ? "null" : R"("")", kFunction,
        arguments_as_text ? R"("{\"where\": 7}")" : R"({"where":7})");
  }
  return out + fmt::format(R"(],"add_generation_prompt":{}}})", with_call ? "false" : "true");
}

/// The rendered text after the question.
std::optional<std::string> rendered(const ChatTemplates& templates, std::string_view name,
                                    const std::string& asked, const ChatSurroundings& with) {
  const Result<TracedText> out = templates.render(name, asked, with);
  if (!out.ok()) return std::nullopt;
  const size_t at = out->text.rfind(kQuestion);
  if (at == std::string::npos) return std::nullopt;
  return out->text.substr(at + kQuestion.size());
}

std::string without_blanks(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (!is_json_blank(c)) out += c;
  }
  return out;
}

/// Whether the format finds the probe's call and nothing else.
bool reads(const ToolFormat& format, std::string_view answer) {
  AnswerShape shape;
  shape.tools = &format;
  shape.functions = {{std::string(kFunction)}};
  shape.channels = format.style == CallStyle::kChannels;
  AnswerParser parser(shape);
  AnswerPieces pieces;
  parser.push(answer, &pieces);
  parser.finish(&pieces);
  int calls = 0;
  std::string arguments;
  for (const AnswerPiece& piece : pieces) {
    calls += piece.type == Type::kCall ? 1 : 0;
    if (piece.type == Type::kArguments) arguments += piece.text;
    if (piece.type == Type::kText && piece.text.find(kFunction) != std::string::npos) return false;
  }
  return calls == 1 && without_blanks(arguments) == R"({"where":7})";
}

/// A format all of whose marks occur in the template's own text.
const ToolFormat* by_marks(std::string_view source) {
  const auto has = [source](std::string_view text) {
    return source.find(text) != std::string_view::npos;
  };
  for (const ToolFormat& format : tool_formats()) {
    if (format.bare || format.style == CallStyle::kChannels) continue;
    const bool keys = has(format.name_key) && has(format.arguments_key) && has(format.quote) &&
                      has(format.tags.key_begin) && has(format.tags.value_end);
    if (has(format.open) && has(format.close) && has(format.list_begin) && has(format.lead) &&
        has(format.name_end) && keys) {
      return &format;
    }
  }
  return nullptr;
}

ReasoningMarks reasoning_of(std::string_view source) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kMarks = {{
      {"<think>", "</think>"},
      {"<|START_THINKING|>", "<|END_THINKING|>"},
      {"[THINK]", "[/THINK]"},
      {"<|channel>thought", "<channel|>"},
      {"<seed:think>", "</seed:think>"},
  }};
  for (const auto& [begin, end] : kMarks) {
    if (source.find(end) != std::string_view::npos) return {std::string(begin), std::string(end)};
  }
  return {};
}

struct ReasoningSwitch {
  std::string_view off;
  std::string_view on{};
  std::string_view literal{};  ///< that the template must contain
};
// Qwen, GLM and others; DeepSeek and Granite; Seed-OSS; Mistral.
constexpr std::array<ReasoningSwitch, 4> kReasoningSwitches = {{
    {R"("enable_thinking":false)", R"("enable_thinking":true)"},
    {R"("thinking":false)", R"("thinking":true)"},
    {R"("thinking_budget":0)"},
    {R"("reasoning_effort":"none")", "", "none"},
}};

bool names_literal(std::string_view source, std::string_view literal) {
  return source.find(fmt::format("'{}'", literal)) != std::string_view::npos ||
         source.find(fmt::format("\"{}\"", literal)) != std::string_view::npos;
}

// Finds the first switch that the template knows: it changes the prompt, and off it closes the
// reasoning, opens none, or is the default.
void find_reasoning_switch(const ChatTemplates& templates, std::string_view name,
                           const ChatSurroundings& surroundings, AnswerFormat* out) {
  if (out->channels) return;
  if (out->reasoning.empty()) {
    out->reasoning_off = "";
    return;
  }
  const auto prompt = [&](std::string_view member) -> std::string {
    if (member.empty()) return {};
    const std::string asked =
        fmt::format("{{{},", member) + conversation(false, false, false).substr(1);
    Result<TracedText> text = templates.render(name, asked, surroundings);
    return text.ok() ? std::move(text->text) : std::string();
  };
  const auto closed = [&](std::string_view text) {
    return jinja::strip_right(text).ends_with(out->reasoning.end);
  };
  const std::string plain = prompt(R"("add_generation_prompt":true)");
  const bool opens = reasoning_is_open(out->reasoning, plain);
  if (closed(plain)) out->reasoning_off = "";
  for (const ReasoningSwitch& each : kReasoningSwitches) {
    const std::string off = prompt(each.off), on = prompt(each.on);
    const bool known = off != plain || (!on.empty() && on != plain);
    if (off.empty() || !known) continue;
    const bool closes = closed(off) || (opens && !reasoning_is_open(out->reasoning, off));
    const bool is_default = off == plain && !opens;
    const bool named = !each.literal.empty() && names_literal(templates.source(name), each.literal);
    if (!closes && !is_default && !named) continue;
    if (!out->reasoning_off) out->reasoning_off = off == plain ? "" : std::string(each.off);
    if (!on.empty() && on != plain) out->reasoning_on = each.on;
    return;
  }
}

void find_tools(const ChatTemplates& templates, std::string_view name,
                const ChatSurroundings& surroundings, AnswerFormat* out) {
  bool shows_calls = false;
  for (const bool null_content : {false, true}) {
    for (const bool as_text : {false, true}) {
      const auto made =
          rendered(templates, name, conversation(null_content, as_text, true), surroundings);
      if (!made || made->find(kFunction) == std::string::npos) continue;
      shows_calls = true;
      const auto prompt =
          rendered(templates, name, conversation(null_content, as_text, false), surroundings);
      // The answer begins where the prompt ends or, if the template renders that differently,
      // somewhere after the question.
      std::vector<std::string_view> answers = {*made};
      if (prompt && made->starts_with(*prompt)) {
        answers.insert(answers.begin(), std::string_view(*made).substr(prompt->size()));
      }
      for (const ToolFormat& format : tool_formats()) {
        const bool read = std::ranges::any_of(
            answers, [&format](std::string_view answer) { return reads(format, answer); });
        if (!read) continue;
        out->tools = &format;
        out->null_content = null_content;
        out->arguments_as_text = as_text;
        return;
      }
    }
  }
  if (!shows_calls) out->tools = by_marks(templates.source(name));
  if (out->tools != nullptr) return;
  out->problem = shows_calls
                     ? "the model's chat template writes calls in a way that is not known"
                     : "the model's chat template shows no way of calling functions that is known";
  out->problem += fmt::format(" (known: {})", tool_format_ids());
}

}  // namespace

std::vector<std::string> AnswerFormat::marks() const {
  std::vector<std::string> out;
  if (!reasoning.empty()) out = {reasoning.begin, reasoning.end};
  const ToolFormat* const format = channels ? find_tool_format("harmony") : tools;
  if (format != nullptr) out.insert(out.end(), format->marks.begin(), format->marks.end());
  return out;
}

AnswerFormat find_answer_format(const ChatTemplates& templates, bool with_tools,
                                const ChatSurroundings& surroundings) {
  AnswerFormat out;
  const std::string_view name = templates.name_for(with_tools);
  const std::string_view source = templates.source(name);
  if (source.empty()) {
    out.problem = "the model has no chat template";
    return out;
  }
  out.channels = source.find("<|channel|>") != std::string_view::npos &&
                 source.find("<|message|>") != std::string_view::npos &&
                 source.find("<|start|>assistant") != std::string_view::npos;
  if (!out.channels) out.reasoning = reasoning_of(source);
  find_reasoning_switch(templates, name, surroundings, &out);
  find_tools(templates, name, surroundings, &out);
  if (out.tools != nullptr) out.channels = out.tools->style == CallStyle::kChannels;
  return out;
}

bool reasoning_is_open(const ReasoningMarks& marks, std::string_view prompt) {
  return !marks.begin.empty() && jinja::strip_right(prompt).ends_with(marks.begin);
}

}  // namespace hearth::models
