// Words of a conversation never become control tokens, whatever the template does with them.

#include <doctest/doctest.h>

#include "models/template/chat_template.h"
#include "models/template/parser.h"
#include "tests/golden/templates/control_vocab.h"
#include "tests/golden/templates/golden_file.h"

namespace hearth::models {
namespace {

using jinja::Value;

void check_family(const std::string& file, const std::vector<std::string>& control) {
  INFO(file);
  const auto chat = ChatTemplate::compile(read_golden(file));
  REQUIRE(chat.ok());
  jinja::Arena arena;
  const std::string cases = read_golden("cases.json");
  const Value root = jinja::parse_json(arena, cases).value();
  size_t kept = 0;
  for (const auto& [name, conversation] : root.dict().find("conversations")->dict().entries()) {
    INFO(std::string(name.text()));
    kept += check_words_stay_text(*chat, conversation, control, {"<s>", "</s>", {}});
  }
  CHECK(kept > 4 * control.size());
}

TEST_CASE("words stay text: blocks that the template calls") {
  check_family("calls.jinja", {"<s>", "</s>", "<user>", "</user>", "<system>", "</system>"});
}
TEST_CASE("words stay text: turns marked by the role's name (ChatML)") {
  check_family("chatml.jinja", {"<|im|>", "<|/im|>", "<s>", "</s>"});
}
TEST_CASE("words stay text: headers (Llama 3)") {
  check_family("headers.jinja", {"<|head|>", "<|/head|>", "<|eot|>", "<s>", "</s>"});
}
TEST_CASE("words stay text: turns without a system role (Gemma)") {
  check_family("turns.jinja", {"<turn>", "</turn>", "<s>", "</s>"});
}
TEST_CASE("words stay text: brackets (Mistral)") {
  check_family("brackets.jinja", {"[INST]", "[/INST]", "[TOOLS]", "[/TOOLS]", "[CALLS]",
                                  "[RESULTS]", "[/RESULTS]", "<s>", "</s>"});
}
TEST_CASE("words stay text: channels (gpt-oss)") {
  check_family("channels.jinja",
               {"<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>"});
}
TEST_CASE("words stay text: marks around turns and calls (DeepSeek)") {
  check_family("marks.jinja",
               {"<|U|>", "<|A|>", "<|eos|>", "<|calls|>", "<|call|>", "<|sep|>", "<|/call|>",
                "<|/calls|>", "<|outs|>", "<|out|>", "<|/out|>", "<|/outs|>", "<s>", "</s>"});
}
TEST_CASE("words stay text: reasoning and tools as JSON (Qwen, GLM)") {
  check_family("thinking.jinja", {"<|s|>", "<|e|>", "<call>", "</call>", "<out>", "</out>"});
}
TEST_CASE("words stay text: a role as a token (Phi)") {
  check_family("oneline.jinja", {"<|system|>", "<|user|>", "<|assistant|>", "<|end|>"});
}
TEST_CASE("words stay text: tools as signatures (Hermes)") {
  check_family("python_types.jinja", {"<|bot|>", "<|end|>", "<|sys|>", "<results>", "</results>"});
}

/// The data of what `source` renders, as text, in brackets; x = "ab", y = "<é>", l = [x, y].
std::string marked(std::string_view source) {
  const jinja::Body body = jinja::parse_template(source).value();
  jinja::Renderer renderer({}, std::tm{});
  const Value values =
      jinja::parse_json(renderer.arena(), R"({"x":"ab","y":"<\u00e9>","l":["ab","c d"]})").value();
  for (const auto& [key, value] : values.dict().entries()) renderer.set_global(key.text(), value);
  const Result<TracedText> out = renderer.render(body);
  REQUIRE_MESSAGE(out.ok(), std::string(source));
  std::string text;
  size_t at = 0;
  for (const ByteSpan& span : out->data) {
    text += out->text.substr(at, span.begin - at) + "{" +
            out->text.substr(span.begin, span.end - span.begin) + "}";
    at = span.end;
  }
  return text + out->text.substr(at);
}

TEST_CASE("a text keeps its origin through every construct") {
  const std::pair<const char*, const char*> cases[] = {
      {"<{{ x }}>", "<{ab}>"},
      {"{{ '<' ~ x ~ '>' ~ y }}", "<{ab}>{<é>}"},
      {"{{ '<' + x + '>' }}", "<{ab}>"},
      {"{{ ('<' + x + '>')[1:] }}", "{ab}>"},
      {"{{ ('<' + x + '>')[:2] }}", "<{a}"},
      {"{{ ('<' + x + '>')[::-1] }}", ">{ba}<"},
      {"{{ ('<' + x + '>') | trim('<') }}", "{ab}>"},
      {"{{ ('<' + x + '>').split('a')[1] }}", "{b}>"},
      {"{{ ('<' + x + '>') | replace('a', '-') }}", "<-{b}>"},
      {"{{ '-.-' | replace('.', x) }}", "-{ab}-"},
      {"{{ 'ab'.replace('', x) }}", "{ab}a{ab}b{ab}"},
      {"{{ x * 2 ~ '-' * 2 }}", "{abab}--"},
      {"{{ l | join('-') }}", "{ab}-{c d}"},
      {"{{ '-'.join(l) }}", "{ab}-{c d}"},
      {"{{ ['a', x] }}", "['a', {'ab'}]"},
      {"{{ {'k': x} | tojson }}", "{\"k\": {\"ab\"}}"},
      {"{{ '%s-%s' | format(x, 1) }}", "{ab}-1"},
      {"{{ '%s-%%' % x }}", "{ab}-%"},
      {"{{ '<{}>'.format(x) }}", "<{ab}>"},
      {"{{ x | upper }}{{ 'a' | upper }}", "{AB}A"},
      {"{{ x.title() }}{{ x | capitalize }}", "{AbAb}"},
      {"{{ ('a\n' + x) | indent(1, true) }}", " a\n {ab}"},
      {"{{ y | e }}{{ '<' | e }}", "{&lt;é&gt;}&lt;"},
      {"{{ x | safe + '<' }}", "{ab}&lt;"},
      {"{{ x.zfill(3) }}{{ x | first }}{{ l | last }}", "{0abac d}"},
      {"{% for c in '<' + x %}{{ c }}.{% endfor %}", "<.{a}.{b}."},
      {"{% set t %}<{{ x }}>{% endset %}{{ t }}", "<{ab}>"},
      {"{% macro m(v) %}<{{ v }}{{ caller() }}>{% endmacro %}{% call m(x) %}-{% endcall %}",
       "<{ab}->"},
      {"{% filter trim %} <{{ x }}> {% endfilter %}", "<{ab}>"},
      {"{% generation %}<{{ x }}>{% endgeneration %}", "<{ab}>"},
      {"{% for v in l recursive %}{% if v is string %}<{{ v }}>{% endif %}{% endfor %}",
       "<{ab}><{c d}>"},
      {"{% set ns = namespace(s='') %}{% for v in l %}{% set ns.s = ns.s + '<' + v %}{% endfor %}"
       "{{ ns.s }}",
       "<{ab}<{c d}"},
      {"{{ {'<': x}.items() | list }}", "[('<', {'ab'})]"},
  };
  for (const auto& [source, wanted] : cases) CHECK(marked(source) == wanted);
}

TEST_CASE("only known roles are the template's own words") {
  const auto chat =
      ChatTemplate::compile("{% for m in messages %}<|{{ m.role }}|>{% endfor %}").value();
  const auto data = [&chat](const std::string& role) {
    return chat.render(R"({"messages":[{"role":")" + role + R"("}]})", {}).value().data;
  };
  CHECK(data("user").empty());
  CHECK(data("assistant").empty());
  CHECK(data("im_end") == std::vector<ByteSpan>{{2, 8}});
}

TEST_CASE("long texts keep their origin") {
  const std::string words(100'000, 'w');
  const auto chat = ChatTemplate::compile("<{{ messages[0].content }}{{ messages[1].content }}>");
  const auto out = chat->render(R"({"messages":[{"role":"user","content":")" + words +
                                    R"("},{"role":"user","content":"b"}]})",
                                {});
  REQUIRE(out.ok());
  CHECK(out->data == std::vector<ByteSpan>{{1, 100'002}});
}

}  // namespace
}  // namespace hearth::models
