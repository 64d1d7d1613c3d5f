#include "models/answer/tool_format.h"

#include <algorithm>

namespace hearth::models {
namespace {

// The marks of DeepSeek's tokenizers: fullwidth bars, and a low block (U+2581) in place of a space.
#define HEARTH_BAR "\xEF\xBD\x9C"
#define HEARTH_GAP "\xE2\x96\x81"
constexpr std::string_view kCallsBegin =
    "<" HEARTH_BAR "tool" HEARTH_GAP "calls" HEARTH_GAP "begin" HEARTH_BAR ">";
constexpr std::string_view kCallsEnd =
    "<" HEARTH_BAR "tool" HEARTH_GAP "calls" HEARTH_GAP "end" HEARTH_BAR ">";
constexpr std::string_view kCallBegin =
    "<" HEARTH_BAR "tool" HEARTH_GAP "call" HEARTH_GAP "begin" HEARTH_BAR ">";
constexpr std::string_view kCallEnd =
    "<" HEARTH_BAR "tool" HEARTH_GAP "call" HEARTH_GAP "end" HEARTH_BAR ">";
#define HEARTH_DSML HEARTH_BAR "DSML" HEARTH_BAR
#define HEARTH_SEP "<" HEARTH_BAR "tool" HEARTH_GAP "sep" HEARTH_BAR ">"

/// Also Qwen 2.5 and 3.
ToolFormat hermes() {
  ToolFormat out;
  out.id = "hermes";
  out.open = "<tool_call>";
  out.close = "</tool_call>";
  out.name_key = "name";
  out.arguments_key = "arguments";
  out.marks = {"<tool_call>", "</tool_call>"};
  out.written = {.first = "",
                 .before_name = "<tool_call>\n{\"name\": \"",
                 .between = "\", \"arguments\": ",
                 .after = "}\n</tool_call>",
                 .separator = "\n",
                 .last = "",
                 .several = true};
  return out;
}

ToolFormat command_r7b() {
  ToolFormat out;
  out.id = "command-r7b";
  out.style = CallStyle::kList;
  out.open = "<|START_ACTION|>";
  out.close = "<|END_ACTION|>";
  out.name_key = "tool_name";
  out.arguments_key = "parameters";
  out.marks = {"<|START_ACTION|>", "<|END_ACTION|>"};
  out.written = {.first = "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", ",
                 .before_name = "\"tool_name\": \"",
                 .between = "\", \"parameters\": ",
                 .after = "}",
                 .separator = "",
                 .last = "\n]<|END_ACTION|>",
                 .several = false};
  return out;
}

ToolFormat command_r() {
  ToolFormat out;
  out.id = "command-r";
  out.style = CallStyle::kList;
  out.open = "Action:";
  out.list_begin = "```json";
  out.close = "```";
  out.name_key = "tool_name";
  out.arguments_key = "parameters";
  out.written = {.first = "Action:\n```json\n[\n",
                 .before_name = "    {\n        \"tool_name\": \"",
                 .between = "\",\n        \"parameters\": ",
                 .after = "\n    }",
                 .separator = ",\n",
                 .last = "\n]```",
                 .several = true};
  return out;
}

/// Since version 11 of its tokenizers.
ToolFormat mistral_named() {
  ToolFormat out;
  out.id = "mistral-named";
  out.style = CallStyle::kNamed;
  out.open = "[TOOL_CALLS]";
  out.name_end = "[ARGS]";
  out.marks = {"[TOOL_CALLS]", "[ARGS]"};
  out.written = {.first = "",
                 .before_name = "[TOOL_CALLS]",
                 .between = "[ARGS]",
                 .after = "",
                 .separator = "",
                 .last = "",
                 .several = true};
  return out;
}

/// Version 11 alone.
ToolFormat mistral_ids() {
  ToolFormat out = mistral_named();
  out.id = "mistral-ids";
  out.id_begin = "[CALL_ID]";
  out.marks = {"[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"};
  out.written.between = "[CALL_ID]000000000[ARGS]";
  return out;
}

ToolFormat mistral() {
  ToolFormat out;
  out.id = "mistral";
  out.style = CallStyle::kList;
  out.open = "[TOOL_CALLS]";
  out.name_key = "name";
  out.arguments_key = "arguments";
  out.marks = {"[TOOL_CALLS]"};
  out.written = {.first = "[TOOL_CALLS][",
                 .before_name = "{\"name\": \"",
                 .between = "\", \"arguments\": ",
                 .after = "}",
                 .separator = ", ",
                 .last = "]",
                 .several = true};
  return out;
}

ToolFormat deepseek() {
  ToolFormat out;
  out.id = "deepseek";
  out.style = CallStyle::kNamed;
  out.open = kCallBegin;
  out.lead = "function" HEARTH_SEP;
  out.name_end = "```json";
  static constexpr std::string_view kFencedEnd =
      "```"
      "<" HEARTH_BAR "tool" HEARTH_GAP "call" HEARTH_GAP "end" HEARTH_BAR ">";
  out.close = kFencedEnd;
  out.around = {kCallsBegin, kCallsEnd};
  out.marks = {kCallsBegin, kCallsEnd, kCallBegin, kCallEnd, HEARTH_SEP};
  static const std::string fenced_first =
      std::string(kCallsBegin);  // static, because views of these must stay valid
  static const std::string fenced_name = std::string(kCallBegin) + "function" HEARTH_SEP;
  static const std::string fenced_after = "\n```" + std::string(kCallEnd);
  out.written = {.first = fenced_first,
                 .before_name = fenced_name,
                 .between = "\n```json\n",
                 .after = fenced_after,
                 .separator = "\n",
                 .last = kCallsEnd,
                 .several = true};
  return out;
}

/// Since V3.1.
ToolFormat deepseek_named() {
  ToolFormat out = deepseek();
  out.id = "deepseek-named";
  out.lead = "";
  out.name_end = HEARTH_SEP;
  out.close = kCallEnd;
  out.written.before_name = kCallBegin;
  out.written.between = HEARTH_SEP;
  out.written.after = kCallEnd;
  out.written.separator = "";
  return out;
}

/// Since V3.2.
ToolFormat deepseek_tags() {
  ToolFormat out;
  out.id = "deepseek-tags";
  out.style = CallStyle::kTagged;
  out.open = "<" HEARTH_DSML "invoke name=\"";
  out.name_end = "\">";
  out.tags = {.key_begin = "<" HEARTH_DSML "parameter name=\"",
              .key_end = "\" string=\"true\">",
              .json_key_end = "\" string=\"false\">",
              .value_begin = "",
              .value_end = "</" HEARTH_DSML "parameter>",
              .end = "</" HEARTH_DSML "invoke>"};
  out.around = {"<" HEARTH_DSML "function_calls>", "</" HEARTH_DSML "function_calls>"};
  out.marks = {HEARTH_DSML};
  out.written = {.first = "<" HEARTH_DSML "function_calls>\n",
                 .before_name = "<" HEARTH_DSML "invoke name=\"",
                 .between = "\">\n",
                 .after = "</" HEARTH_DSML "invoke>\n",
                 .separator = "",
                 .last = "</" HEARTH_DSML "function_calls>",
                 .several = true};
  return out;
}

ToolFormat minimax() {
  ToolFormat out;
  out.id = "minimax";
  out.style = CallStyle::kTagged;
  out.open = "<invoke name=\"";
  out.name_end = "\">";
  out.tags = {.key_begin = "<parameter name=\"",
              .key_end = "\">",
              .json_key_end = "",
              .value_begin = "",
              .value_end = "</parameter>",
              .end = "</invoke>"};
  out.around = {"<minimax:tool_call>", "</minimax:tool_call>"};
  out.marks = {"<minimax:tool_call>", "</minimax:tool_call>"};
  out.written = {.first = "<minimax:tool_call>\n",
                 .before_name = "<invoke name=\"",
                 .between = "\">\n",
                 .after = "</invoke>\n",
                 .separator = "",
                 .last = "</minimax:tool_call>",
                 .several = true};
  return out;
}

/// Also Nemotron 3.
ToolFormat qwen_coder() {
  ToolFormat out;
  out.id = "qwen-coder";
  out.style = CallStyle::kTagged;
  out.open = "<tool_call>";
  out.lead = "<function=";
  out.name_end = ">";
  out.close = "</tool_call>";
  out.tags = {.key_begin = "<parameter=",
              .key_end = ">",
              .json_key_end = "",
              .value_begin = "",
              .value_end = "</parameter>",
              .end = "</function>",
              .lines = true};
  out.marks = {"<tool_call>", "</tool_call>"};
  out.written = {.first = "",
                 .before_name = "<tool_call>\n<function=",
                 .between = ">\n",
                 .after = "</function>\n</tool_call>",
                 .separator = "\n",
                 .last = "",
                 .several = true};
  return out;
}

ToolFormat seed() {
  ToolFormat out = qwen_coder();
  out.id = "seed";
  out.open = "<seed:tool_call>";
  out.close = "</seed:tool_call>";
  out.tags.lines = false;
  out.marks = {"<seed:tool_call>", "</seed:tool_call>"};
  out.written.before_name = "<seed:tool_call>\n<function=";
  out.written.after = "</function>\n</seed:tool_call>";
  return out;
}

/// K2.
ToolFormat kimi() {
  ToolFormat out;
  out.id = "kimi";
  out.style = CallStyle::kNamed;
  out.open = "<|tool_call_begin|>";
  out.lead = "functions.";
  out.id_begin = ":";
  out.name_end = "<|tool_call_argument_begin|>";
  out.close = "<|tool_call_end|>";
  out.around = {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"};
  out.marks = {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
               "<|tool_call_argument_begin|>", "<|tool_call_end|>"};
  out.written = {.first = "<|tool_calls_section_begin|>",
                 .before_name = "<|tool_call_begin|>functions.",
                 .between = ":0<|tool_call_argument_begin|>",
                 .after = "<|tool_call_end|>",
                 .separator = "",
                 .last = "<|tool_calls_section_end|>",
                 .several = true};
  return out;
}

/// Since 4.5.
ToolFormat glm() {
  ToolFormat out;
  out.id = "glm";
  out.style = CallStyle::kTagged;
  out.open = "<tool_call>";
  out.tags = {.key_begin = "<arg_key>",
              .key_end = "</arg_key>",
              .json_key_end = "",
              .value_begin = "<arg_value>",
              .value_end = "</arg_value>",
              .end = "</tool_call>"};
  out.marks = {"<tool_call>", "</tool_call>", "<arg_key>",
               "</arg_key>",  "<arg_value>",  "</arg_value>"};
  out.written = {.first = "",
                 .before_name = "<tool_call>",
                 .between = "",
                 .after = "</tool_call>",
                 .separator = "\n",
                 .last = "",
                 .several = true};
  return out;
}

/// Since 4.
ToolFormat gemma() {
  ToolFormat out;
  out.id = "gemma";
  out.style = CallStyle::kQuoted;
  out.open = "<|tool_call>";
  out.lead = "call:";
  out.close = "<tool_call|>";
  out.quote = "<|\"|>";
  out.marks = {"<|tool_call>", "<tool_call|>", "<|\"|>"};
  out.written = {.first = "",
                 .before_name = "<|tool_call>call:",
                 .between = "",
                 .after = "<tool_call|>",
                 .separator = "",
                 .last = "",
                 .several = true};
  return out;
}

/// Gpt-oss.
ToolFormat harmony() {
  ToolFormat out;
  out.id = "harmony";
  out.style = CallStyle::kChannels;
  out.marks = {"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>"};
  out.ends = {"<|call|>", "<|return|>"};
  out.written = {.first = "<|channel|>commentary to=functions.",
                 .before_name = "",
                 .between = " <|constrain|>json<|message|>",
                 .after = "",
                 .separator = "",
                 .last = "",
                 .several = false};
  return out;
}

ToolFormat llama() {
  ToolFormat out;
  out.id = "llama";
  out.bare = true;
  out.optional_open = "<|python_tag|>";
  out.name_key = "name";
  out.arguments_key = "parameters";
  out.marks = {"<|python_tag|>"};
  out.written = {.first = "",
                 .before_name = "{\"name\": \"",
                 .between = "\", \"parameters\": ",
                 .after = "}",
                 .separator = "",
                 .last = "",
                 .several = false};
  return out;
}

// llama is last, because only the object itself marks a call.
const std::vector<ToolFormat>& all() {
  static const std::vector<ToolFormat> formats = {
      hermes(),     command_r7b(), command_r(),      mistral_named(), mistral_ids(),
      mistral(),    deepseek(),    deepseek_named(), deepseek_tags(), minimax(),
      qwen_coder(), seed(),        kimi(),           glm(),           gemma(),
      harmony(),    llama(),
  };
  return formats;
}

}  // namespace

std::span<const ToolFormat> tool_formats() { return all(); }

const ToolFormat* find_tool_format(std::string_view id) {
  const auto found = std::ranges::find(all(), id, &ToolFormat::id);
  return found == all().end() ? nullptr : &*found;
}

std::string tool_format_ids() {
  std::string out;
  for (const ToolFormat& format : all()) {
    if (!out.empty()) out += ", ";
    out += format.id;
  }
  return out;
}

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

bool is_function_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 && std::ranges::all_of(name, is_name_char) &&
         name != "auto" && name != "none" && name != "required";
}

}  // namespace hearth::models
