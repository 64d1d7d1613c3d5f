// Limits of a rendering: hostile templates end soon, with an error that names the limit.

#include <doctest/doctest.h>

#include "models/gguf/gguf_file.h"
#include "models/gguf/gguf_writer.h"
#include "models/template/chat_template.h"
#include "models/template/json.h"
#include "models/template/parser.h"
#include "models/template/renderer.h"

namespace hearth::models {
namespace {

constexpr std::string_view kOneMessage = R"({"messages":[{"role":"user","content":"hi"}],"k":1})";

Result<std::string> render(std::string_view source, std::string_view conversation = kOneMessage) {
  HEARTH_ASSIGN_OR_RETURN(const ChatTemplate compiled, ChatTemplate::compile(source));
  HEARTH_ASSIGN_OR_RETURN(TracedText out, compiled.render(conversation, {}));
  return std::move(out.text);
}

std::string repeated(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

TEST_CASE("time, memory, output and depth are bounded") {
  const std::string loops =
      "{% for a in range(99999) %}{% for b in range(99999) %}"
      "{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}";
  const std::string hostile[] = {
      loops,
      "{{ 'x' * 99999999999 }}",
      "{{ [1] * 99999999999 }}",
      "{% set ns = namespace(s='abcdefgh') %}{% for i in range(99) %}"
      "{% set ns.s = ns.s + ns.s %}{% endfor %}",
      "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = [ns.s, ns.s] %}"
      "{% endfor %}{{ ns.s }}",
      "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}"
      "{% endfor %}{{ ns.s | tojson }}",
      "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}"
      "{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
      "{% set ns = namespace(s=[1]) %}{% for i in range(5000) %}{% set ns.s = [ns.s] %}"
      "{% endfor %}{{ ns.s }}",
      "{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}",
      "{% macro m(x) %}{{ m(x) }}{{ m(x) }}{% endmacro %}{{ m(1) }}",
      "{% set l = [] %}{{ l.append(l) }}{{ l }}",
      "{% set l = [] %}{{ l.append(l) }}{{ l | tojson }}",
      "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
      "{{ ['aaaaaaaaaaaaaaaa' * 1000000] * 100 | join('') }}",
      "{{ ('a' * 3000000) | replace('a', 'b' * 3000000) }}",
      "{{ 'a' | indent(99999999999) }}",
      "{{ (['a' * 1000000] * 1000) | join('x') }}",
      "{{ range(99999999999) }}",
      "{{ 9223372036854775807 + 1 }}",
      "{{ 3 ** 99999 }}",
      "{{ " + repeated("(", 500) + "1" + repeated(")", 500) + " }}",
      "{{ " + repeated("-", 500) + "1 }}",
      "{{ " + repeated("not ", 500) + "1 }}",
      "{{ 1" + repeated(" + 1", 5000) + " }}",
      "{{ 1" + repeated("|abs", 5000) + " }}",
      "{{ a" + repeated(".a", 5000) + " }}",
      "{{ " + repeated("[", 500) + repeated("]", 500) + " }}",
      repeated("{% if 1 %}", 500) + repeated("{% endif %}", 500),
  };
  for (const std::string& source : hostile) {
    const auto met = render(source);
    CHECK_MESSAGE(!met.ok(), source.substr(0, 100));
    if (!met.ok()) CHECK(met.error().message.starts_with("chat template, line "));
  }
}

TEST_CASE("a value that refers to itself is freed with the rest") {
  CHECK(render("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns.me.me.me is defined }}")
            .value() == "True");
  CHECK(render("{% set l = [1] %}{% set x = l.append(l) %}{{ l[1][1][0] }}").value() == "1");
}

TEST_CASE("errors name the line and the construct") {
  const auto filter = render("a\nb\n{{ k | nonesuch }}");
  CHECK(filter.error().message == "chat template, line 3: the filter 'nonesuch' is not supported");
  CHECK(filter.error().code == ErrorCode::kUnsupported);
  const auto statement = render("\n{% include 'x' %}");
  CHECK(statement.error().message ==
        "chat template, line 2: the statement 'include' is not supported");
  const auto refused = render("\n\n\n{{ raise_exception('only ' ~ k) }}");
  CHECK(refused.error().message == "chat template, line 4: the template refuses: only 1");
  CHECK(refused.error().code == ErrorCode::kInvalidArgument);
  CHECK(refused.error().field == "messages");
  CHECK(render("{{ missing.x }}").error().message ==
        "chat template, line 1: 'missing' is undefined");
}

TEST_CASE("a conversation is a JSON object with messages") {
  const char* const wrong[] = {"",
                               "[]",
                               "{}",
                               R"({"messages":7})",
                               R"({"messages":[7]})",
                               R"({"messages":[{}]})",
                               R"({"messages":[{"role":7}]})",
                               R"({"messages":[{"role":"user"}]} x)",
                               "{\"messages\":[\"\xFF\"]}",
                               R"({"messages":["\ud800"]})",
                               R"({"messages":[],"n":1e999})",
                               R"({"messages":[],"n":99999999999999999999})"};
  for (const char* conversation : wrong) {
    CHECK_MESSAGE(!render("x", conversation).ok(), conversation);
  }
  CHECK_FALSE(render("x", repeated("[", 100000)).ok());
  CHECK(
      render("{{ messages | length }}{{ tools }}{{ add_generation_prompt }}", R"({"messages":[]})")
          .value() == "0NoneTrue");
}

TEST_CASE("time is linear in the conversation") {
  // Quadratic time would exceed the limit of steps by far.
  std::string conversation = R"({"messages":[)";
  for (int i = 0; i < 3000; ++i) {
    if (i > 0) conversation += ",";
    conversation += R"({"role":"user","content":")" + repeated("some words ", 40) + "\"}";
  }
  conversation += "]}";
  const auto met = render(
      "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}\n{% endfor %}", conversation);
  REQUIRE(met.ok());
  CHECK(met->size() > 3000u * 440);
}

TEST_CASE("the templates of a file, by name") {
  GgufWriter writer;
  writer.set_string("tokenizer.chat_template.tool_use", "tools!");
  writer.set_string("tokenizer.chat_template", "plain {{ messages[0].content }}");
  writer.set_string("tokenizer.chat_templates", "no template");
  const auto bytes = writer.bytes();
  const auto file = GgufFile::parse(bytes, "m");
  REQUIRE(file.ok());
  const ChatTemplates templates = ChatTemplates::load(*file);
  CHECK(templates.names() == std::vector<std::string>{"", "tool_use"});
  CHECK(templates.render("", kOneMessage, {}).value().text == "plain hi");
  CHECK(templates.render("tool_use", kOneMessage, {}).value().text == "tools!");
  CHECK(templates.render("", R"({"messages":[],"tools":[{"name":"x"}]})", {}).value().text ==
        "tools!");
  CHECK(templates.render("rag", kOneMessage, {}).error().code == ErrorCode::kNotFound);
  const auto none = ChatTemplates().render("", kOneMessage, {});
  CHECK(none.error().code == ErrorCode::kNotFound);
  CHECK(none.error().message.find("no chat template") != std::string::npos);
}

}  // namespace
}  // namespace hearth::models
