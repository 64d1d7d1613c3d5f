#include "models/answer/answer_format.h"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>

#include "models/gguf/gguf_file.h"
#include "models/gguf/gguf_writer.h"
#include "tests/paths.h"

namespace hearth::models {
namespace {

AnswerFormat format_of(const std::string& source, const std::string& tool_use = {}) {
  GgufWriter writer;
  writer.set_string("general.architecture", "llama");
  writer.set_string("tokenizer.chat_template", source);
  if (!tool_use.empty()) writer.set_string("tokenizer.chat_template.tool_use", tool_use);
  const std::vector<std::byte> bytes = writer.bytes();
  const GgufFile file = GgufFile::parse(bytes, "test").value();
  ChatSurroundings with;
  with.bos_token = "<s>";
  with.eos_token = "</s>";
  return find_answer_format(ChatTemplates::load(file), true, with);
}

std::string id_of(const AnswerFormat& format) {
  return format.tools == nullptr ? "" : std::string(format.tools->id);
}

// Conversations with the text before and after a call.
std::string chat(const std::string& call) {
  return "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content or '' }}"
         "{% for c in m.tool_calls or [] %}" +
         call +
         "{% endfor %}<|end|>\n{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif "
         "%}";
}

TEST_CASE("a template shows how tool calls are written") {
  struct Case {
    const char* call;
    const char* id;
  };
  const Case cases[] = {
      {"<tool_call>\n{{ c.function | tojson }}\n</tool_call>", "hermes"},
      {R"({"name": "{{ c.function.name }}", "parameters": {{ c.function.arguments | tojson }}})",
       "llama"},
      {"[TOOL_CALLS] [{{ c.function | tojson }}]", "mistral"},
      {"[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}",
       "mistral-named"},
      {"Action:\n```json\n[{\"tool_name\": \"{{ c.function.name }}\", \"parameters\": "
       "{{ c.function.arguments | tojson }}}]```",
       "command-r"},
      {"<|START_ACTION|>[{\"tool_name\": \"{{ c.function.name }}\", \"parameters\": "
       "{{ c.function.arguments | tojson }}}]<|END_ACTION|>",
       "command-r7b"},
  };
  for (const Case& each : cases) {
    const AnswerFormat format = format_of(chat(each.call));
    CHECK(id_of(format) == each.id);
    CHECK_FALSE(format.arguments_as_text);
    CHECK_FALSE(format.null_content);
  }
}

TEST_CASE("a template's switch for reasoning is found") {
  using Switch = std::optional<std::string>;
  struct Case {
    const char* opening;
    Switch off;
    const char* on = "";
  };
  const Case cases[] = {
      {"{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>{% endif %}",
       R"("enable_thinking":false)"},
      {"{% if enable_thinking == false %}</think>{% else %}<think>\n{% endif %}",
       R"("enable_thinking":false)"},
      {"{% if thinking %}<think>{% else %}</think>{% endif %}", "", R"("thinking":true)"},
      {"{% if thinking %}<|think|>{% endif %}", "", R"("thinking":true)"},
      {"{% if thinking_budget == 0 %}<think></think>{% endif %}", R"("thinking_budget":0)"},
      {"{% if reasoning_effort == 'none' %}[off]{% endif %}", R"("reasoning_effort":"none")"},
      {"{% if reasoning_effort %}[{{ reasoning_effort }}]{% endif %}", std::nullopt},
      {"<think>", std::nullopt},
      {"", std::nullopt},
  };
  for (const Case& each : cases) {
    INFO(each.opening);
    const AnswerFormat format = format_of(
        "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}A:" +
        std::string(each.opening) + "{% endif %}{# <think> </think> #}");
    CHECK(format.reasoning_off == each.off);
    CHECK(format.reasoning_on == each.on);
  }
  // No reasoning: nothing to switch off.
  CHECK(format_of("{{ messages[0].content }}").reasoning_off == Switch(""));
}

TEST_CASE("templates that expect arguments as text, or no content, are recognized") {
  const AnswerFormat text =
      format_of(chat("<tool_call>{\"name\": \"{{ c.function.name }}\", \"arguments\": ' + "
                     "{{ '' + c.function.arguments }}}</tool_call>"));
  CHECK(id_of(text).empty());  // an unmatched quote, which is never read
  const AnswerFormat right =
      format_of(chat("<tool_call>{\"name\": \"{{ c.function.name }}\", \"arguments\": "
                     "{{ '' + c.function.arguments }}}</tool_call>"));
  CHECK(id_of(right) == "hermes");
  CHECK(right.arguments_as_text);
  const AnswerFormat null = format_of(
      "{% for m in messages %}{% if m.role == 'user' %}<u>{{ m.content }}{% elif m.content is none "
      "%}"
      "{% for c in m.tool_calls %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
      "{% else %}{{ m.content }}{% endif %}{% endfor %}");
  CHECK(id_of(null) == "hermes");
  CHECK(null.null_content);
}

TEST_CASE("an unknown template has no format, which is reported") {
  for (const char* call :
       {"<call>{{ c.function | tojson }}</call>",
        "<tool_call>{{ c.function.name }}<arg>{{ c.function.arguments }}",
        "<tool_call>\n<function={{ c.function.name }}></function></tool_call>"}) {
    const AnswerFormat format = format_of(chat(call));
    CHECK(format.tools == nullptr);
    CHECK(format.problem.find("hermes") != std::string::npos);
  }
  CHECK(format_of(chat("")).tools == nullptr);
  CHECK(format_of("{{ raise_exception('no') }}").tools == nullptr);
  // It renders no calls in messages, but describes to the model how to write them.
  CHECK(id_of(format_of("{% if tools %}Write <tool_call>{\"name\": .., \"arguments\": ..}"
                        "</tool_call>{% endif %}" +
                        chat(""))) == "hermes");
  CHECK(id_of(format_of(chat(""), chat("[TOOL_CALLS] [{{ c.function | tojson }}]"))) == "mistral");
}

TEST_CASE("reasoning is marked by the template, and may be open at the end of the prompt") {
  const AnswerFormat thinking = format_of(chat("") + "{# </think> #}");
  CHECK(thinking.reasoning == ReasoningMarks{"<think>", "</think>"});
  CHECK(thinking.marks() == std::vector<std::string>{"<think>", "</think>"});
  CHECK(format_of("[THINK] [/THINK]").reasoning.begin == "[THINK]");
  CHECK(format_of("<|END_THINKING|>").reasoning.begin == "<|START_THINKING|>");
  CHECK(format_of(chat("")).reasoning.empty());
  CHECK(reasoning_is_open(thinking.reasoning, "assistant\n<think>\n"));
  CHECK_FALSE(reasoning_is_open(thinking.reasoning, "assistant\n<think>\n\n</think>\n\n"));
  CHECK_FALSE(reasoning_is_open(thinking.reasoning, "<think> asks the user\nassistant\n"));
  CHECK_FALSE(reasoning_is_open({}, "assistant\n"));
}

TEST_CASE("channels are a format of their own") {
  std::ifstream in(hearth::tests::source_path("tests/golden/templates/channels.jinja"));
  const std::string source(std::istreambuf_iterator<char>(in), {});
  REQUIRE_FALSE(source.empty());
  const AnswerFormat format = format_of(source);
  CHECK(format.channels);
  CHECK(id_of(format) == "harmony");
}

}  // namespace
}  // namespace hearth::models
