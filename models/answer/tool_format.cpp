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

std::vector<ToolFormat> make_formats() {
  std::vector<ToolFormat> out;

  ToolFormat hermes;  // also Qwen 2.5 and 3
  hermes.id = "hermes";
  hermes.open = "<tool_call>";
  hermes.close = "</tool_call>";
  hermes.name_key = "name";
  hermes.arguments_key = "arguments";
  hermes.marks = {"<tool_call>", "</tool_call>"};
  hermes.written = {.first = "",
                    .before_name = "<tool_call>\n{\"name\": \"",
                    .between = "\", \"arguments\": ",
                    .behind = "}\n</tool_call>",
                    .separator = "\n",
                    .last = "",
                    .several = true};
  out.push_back(hermes);

  ToolFormat command_r7b;
  command_r7b.id = "command-r7b";
  command_r7b.style = CallStyle::kList;
  command_r7b.open = "<|START_ACTION|>";
  command_r7b.close = "<|END_ACTION|>";
  command_r7b.name_key = "tool_name";
  command_r7b.arguments_key = "parameters";
  command_r7b.marks = {"<|START_ACTION|>", "<|END_ACTION|>"};
  command_r7b.written = {.first = "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", ",
                         .before_name = "\"tool_name\": \"",
                         .between = "\", \"parameters\": ",
                         .behind = "}",
                         .separator = "",
                         .last = "\n]<|END_ACTION|>",
                         .several = false};
  out.push_back(command_r7b);

  ToolFormat command_r;
  command_r.id = "command-r";
  command_r.style = CallStyle::kList;
  command_r.open = "Action:";
  command_r.list_begin = "```json";
  command_r.close = "```";
  command_r.name_key = "tool_name";
  command_r.arguments_key = "parameters";
  command_r.written = {.first = "Action:\n```json\n[\n",
                       .before_name = "    {\n        \"tool_name\": \"",
                       .between = "\",\n        \"parameters\": ",
                       .behind = "\n    }",
                       .separator = ",\n",
                       .last = "\n]```",
                       .several = true};
  out.push_back(command_r);

  ToolFormat mistral_named;  // since version 11 of its tokenizers
  mistral_named.id = "mistral-named";
  mistral_named.style = CallStyle::kNamed;
  mistral_named.open = "[TOOL_CALLS]";
  mistral_named.name_end = "[ARGS]";
  mistral_named.marks = {"[TOOL_CALLS]", "[ARGS]"};
  mistral_named.written = {.first = "",
                           .before_name = "[TOOL_CALLS]",
                           .between = "[ARGS]",
                           .behind = "",
                           .separator = "",
                           .last = "",
                           .several = true};
  out.push_back(mistral_named);

  ToolFormat mistral_ids = mistral_named;  // version 11 alone
  mistral_ids.id = "mistral-ids";
  mistral_ids.id_begin = "[CALL_ID]";
  mistral_ids.marks = {"[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"};
  mistral_ids.written.between = "[CALL_ID]000000000[ARGS]";
  out.push_back(mistral_ids);

  ToolFormat mistral;
  mistral.id = "mistral";
  mistral.style = CallStyle::kList;
  mistral.open = "[TOOL_CALLS]";
  mistral.name_key = "name";
  mistral.arguments_key = "arguments";
  mistral.marks = {"[TOOL_CALLS]"};
  mistral.written = {.first = "[TOOL_CALLS][",
                     .before_name = "{\"name\": \"",
                     .between = "\", \"arguments\": ",
                     .behind = "}",
                     .separator = ", ",
                     .last = "]",
                     .several = true};
  out.push_back(mistral);

  ToolFormat deepseek;
  deepseek.id = "deepseek";
  deepseek.style = CallStyle::kNamed;
  deepseek.open = kCallBegin;
  deepseek.lead = "function" HEARTH_SEP;
  deepseek.name_end = "```json";
  static constexpr std::string_view kFencedEnd =
      "```"
      "<" HEARTH_BAR "tool" HEARTH_GAP "call" HEARTH_GAP "end" HEARTH_BAR ">";
  deepseek.close = kFencedEnd;
  deepseek.around = {kCallsBegin, kCallsEnd};
  deepseek.marks = {kCallsBegin, kCallsEnd, kCallBegin, kCallEnd, HEARTH_SEP};
  static const std::string fenced_first =
      std::string(kCallsBegin);  // static, because views of these must stay valid
  static const std::string fenced_name = std::string(kCallBegin) + "function" HEARTH_SEP;
  static const std::string fenced_behind = "\n```" + std::string(kCallEnd);
  deepseek.written = {.first = fenced_first,
                      .before_name = fenced_name,
                      .between = "\n```json\n",
                      .behind = fenced_behind,
                      .separator = "\n",
                      .last = kCallsEnd,
                      .several = true};
  out.push_back(deepseek);

  ToolFormat deepseek_named = deepseek;  // since V3.1
  deepseek_named.id = "deepseek-named";
  deepseek_named.lead = "";
  deepseek_named.name_end = HEARTH_SEP;
  deepseek_named.close = kCallEnd;
  deepseek_named.written.before_name = kCallBegin;
  deepseek_named.written.between = HEARTH_SEP;
  deepseek_named.written.behind = kCallEnd;
  deepseek_named.written.separator = "";
  out.push_back(deepseek_named);

  ToolFormat deepseek_tags;  // since V3.2
  deepseek_tags.id = "deepseek-tags";
  deepseek_tags.style = CallStyle::kTagged;
  deepseek_tags.open = "<" HEARTH_DSML "invoke name=\"";
  deepseek_tags.name_end = "\">";
  deepseek_tags.tags = {.key_begin = "<" HEARTH_DSML "parameter name=\"",
                        .key_end = "\" string=\"true\">",
                        .json_key_end = "\" string=\"false\">",
                        .value_begin = "",
                        .value_end = "</" HEARTH_DSML "parameter>",
                        .end = "</" HEARTH_DSML "invoke>"};
  deepseek_tags.around = {"<" HEARTH_DSML "function_calls>", "</" HEARTH_DSML "function_calls>"};
  deepseek_tags.marks = {HEARTH_DSML};
  deepseek_tags.written = {.first = "<" HEARTH_DSML "function_calls>\n",
                           .before_name = "<" HEARTH_DSML "invoke name=\"",
                           .between = "\">\n",
                           .behind = "</" HEARTH_DSML "invoke>\n",
                           .separator = "",
                           .last = "</" HEARTH_DSML "function_calls>",
                           .several = true};
  out.push_back(deepseek_tags);

  ToolFormat minimax;
  minimax.id = "minimax";
  minimax.style = CallStyle::kTagged;
  minimax.open = "<invoke name=\"";
  minimax.name_end = "\">";
  minimax.tags = {.key_begin = "<parameter name=\"",
                  .key_end = "\">",
                  .json_key_end = "",
                  .value_begin = "",
                  .value_end = "</parameter>",
                  .end = "</invoke>"};
  minimax.around = {"<minimax:tool_call>", "</minimax:tool_call>"};
  minimax.marks = {"<minimax:tool_call>", "</minimax:tool_call>"};
  minimax.written = {.first = "<minimax:tool_call>\n",
                     .before_name = "<invoke name=\"",
                     .between = "\">\n",
                     .behind = "</invoke>\n",
                     .separator = "",
                     .last = "</minimax:tool_call>",
                     .several = true};
  out.push_back(minimax);

  ToolFormat qwen_coder;  // also Nemotron 3
  qwen_coder.id = "qwen-coder";
  qwen_coder.style = CallStyle::kTagged;
  qwen_coder.open = "<tool_call>";
  qwen_coder.lead = "<function=";
  qwen_coder.name_end = ">";
  qwen_coder.close = "</tool_call>";
  qwen_coder.tags = {.key_begin = "<parameter=",
                     .key_end = ">",
                     .json_key_end = "",
                     .value_begin = "",
                     .value_end = "</parameter>",
                     .end = "</function>",
                     .lines = true};
  qwen_coder.marks = {"<tool_call>", "</tool_call>"};
  qwen_coder.written = {.first = "",
                        .before_name = "<tool_call>\n<function=",
                        .between = ">\n",
                        .behind = "</function>\n</tool_call>",
                        .separator = "\n",
                        .last = "",
                        .several = true};
  out.push_back(qwen_coder);

  ToolFormat seed = qwen_coder;
  seed.id = "seed";
  seed.open = "<seed:tool_call>";
  seed.close = "</seed:tool_call>";
  seed.tags.lines = false;
  seed.marks = {"<seed:tool_call>", "</seed:tool_call>"};
  seed.written.before_name = "<seed:tool_call>\n<function=";
  seed.written.behind = "</function>\n</seed:tool_call>";
  out.push_back(seed);

  ToolFormat kimi;  // K2
  kimi.id = "kimi";
  kimi.style = CallStyle::kNamed;
  kimi.open = "<|tool_call_begin|>";
  kimi.lead = "functions.";
  kimi.id_begin = ":";
  kimi.name_end = "<|tool_call_argument_begin|>";
  kimi.close = "<|tool_call_end|>";
  kimi.around = {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"};
  kimi.marks = {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
                "<|tool_call_argument_begin|>", "<|tool_call_end|>"};
  kimi.written = {.first = "<|tool_calls_section_begin|>",
                  .before_name = "<|tool_call_begin|>functions.",
                  .between = ":0<|tool_call_argument_begin|>",
                  .behind = "<|tool_call_end|>",
                  .separator = "",
                  .last = "<|tool_calls_section_end|>",
                  .several = true};
  out.push_back(kimi);

  ToolFormat glm;  // since 4.5
  glm.id = "glm";
  glm.style = CallStyle::kTagged;
  glm.open = "<tool_call>";
  glm.tags = {.key_begin = "<arg_key>",
              .key_end = "</arg_key>",
              .json_key_end = "",
              .value_begin = "<arg_value>",
              .value_end = "</arg_value>",
              .end = "</tool_call>"};
  glm.marks = {"<tool_call>", "</tool_call>", "<arg_key>",
               "</arg_key>",  "<arg_value>",  "</arg_value>"};
  glm.written = {.first = "",
                 .before_name = "<tool_call>",
                 .between = "",
                 .behind = "</tool_call>",
                 .separator = "\n",
                 .last = "",
                 .several = true};
  out.push_back(glm);

  ToolFormat gemma;  // since 4
  gemma.id = "gemma";
  gemma.style = CallStyle::kQuoted;
  gemma.open = "<|tool_call>";
  gemma.lead = "call:";
  gemma.close = "<tool_call|>";
  gemma.quote = "<|\"|>";
  gemma.marks = {"<|tool_call>", "<tool_call|>", "<|\"|>"};
  gemma.written = {.first = "",
                   .before_name = "<|tool_call>call:",
                   .between = "",
                   .behind = "<tool_call|>",
                   .separator = "",
                   .last = "",
                   .several = true};
  out.push_back(gemma);

  ToolFormat harmony;  // gpt-oss
  harmony.id = "harmony";
  harmony.style = CallStyle::kChannels;
  harmony.marks = {"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>"};
  harmony.ends = {"<|call|>", "<|return|>"};
  harmony.written = {.first = "<|channel|>commentary to=functions.",
                     .before_name = "",
                     .between = " <|constrain|>json<|message|>",
                     .behind = "",
                     .separator = "",
                     .last = "",
                     .several = false};
  out.push_back(harmony);

  // Last, because only the object itself marks a call.
  ToolFormat llama;
  llama.id = "llama";
  llama.bare = true;
  llama.optional_open = "<|python_tag|>";
  llama.name_key = "name";
  llama.arguments_key = "parameters";
  llama.marks = {"<|python_tag|>"};
  llama.written = {.first = "",
                   .before_name = "{\"name\": \"",
                   .between = "\", \"parameters\": ",
                   .behind = "}",
                   .separator = "",
                   .last = "",
                   .several = false};
  out.push_back(llama);
  return out;
}

const std::vector<ToolFormat>& all() {
  static const std::vector<ToolFormat> formats = make_formats();
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
