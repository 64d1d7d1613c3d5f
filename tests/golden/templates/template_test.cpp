// Chat templates compared with Python's jinja2: cases.json has templates of our own and the texts
// that make_cases.py rendered with it. Byte for byte.

#include <doctest/doctest.h>

#include "models/gguf/gguf_file.h"
#include "models/gguf/gguf_writer.h"
#include "models/template/chat_template.h"
#include "models/template/json.h"
#include "models/template/parser.h"
#include "models/template/renderer.h"
#include "tests/golden/templates/golden_file.h"

namespace hearth::models {
namespace {

using jinja::Value;

/// 2026-03-07 14:05:09, a Saturday, as in oracle.py.
std::tm a_moment() {
  std::tm now{};
  now.tm_year = 126;
  now.tm_mon = 2;
  now.tm_mday = 7;
  now.tm_hour = 14;
  now.tm_min = 5;
  now.tm_sec = 9;
  now.tm_wday = 6;
  now.tm_yday = 65;
  return now;
}

struct Cases {
  jinja::Arena arena;
  Value root;

  Cases() {
    const std::string text = read_golden("cases.json");
    auto parsed = jinja::parse_json(arena, text);
    REQUIRE_MESSAGE(parsed.ok(), parsed.error().message);
    root = *parsed;
  }
  const Value& at(const Value& in, std::string_view key) const {
    const Value* found = in.dict().find(key);
    REQUIRE_MESSAGE(found != nullptr, std::string(key));
    return *found;
  }
};

Result<TracedText> render(std::string_view source, const jinja::Dict& context) {
  HEARTH_ASSIGN_OR_RETURN(const jinja::Body body, jinja::parse_template(source));
  jinja::Renderer renderer({}, a_moment());
  // A copy: a template may change its input.
  jinja::Renderer writer({}, a_moment());
  for (const auto& [key, value] : context.entries()) {
    HEARTH_ASSIGN_OR_RETURN(const TracedText json, jinja::to_json(writer, value, {}));
    HEARTH_ASSIGN_OR_RETURN(const Value copy, jinja::parse_json(renderer.arena(), json.text));
    renderer.set_global(key.text(), copy);
  }
  return renderer.render(body);
}

void check(const Result<TracedText>& met, const Value& wanted, const std::string& what) {
  if (wanted.is_none()) {
    CHECK_MESSAGE(!met.ok(),
                  "jinja2 refuses: " << what << "\nmet: " << (met.ok() ? met->text : ""));
    return;
  }
  if (!met.ok()) {
    FAIL_CHECK(what << "\n" << met.error().message);
    return;
  }
  CHECK_MESSAGE(met->text == wanted.text(), what);
}

TEST_CASE("every construct renders as jinja2 renders it") {
  const Cases cases;
  const jinja::Dict& context = cases.at(cases.root, "context").dict();
  const auto& pieces = cases.at(cases.root, "pieces").list().items;
  CHECK(pieces.size() > 80);
  for (const Value& piece : pieces) {
    const std::string_view source = cases.at(piece, "template").text();
    check(render(source, context), cases.at(piece, "expected"), std::string(source));
  }
}

TEST_CASE("templates that jinja2 refuses are refused, and the line is named") {
  const Cases cases;
  const jinja::Dict& context = cases.at(cases.root, "context").dict();
  for (const Value& source : cases.at(cases.root, "refused").list().items) {
    const auto met = render(source.text(), context);
    CHECK_MESSAGE(!met.ok(), std::string(source.text()));
    if (!met.ok()) CHECK(met.error().message.starts_with("chat template, line 1: "));
  }
}

TEST_CASE("whole chat templates over conversations render as jinja2 renders them") {
  const Cases cases;
  const jinja::Dict& conversations = cases.at(cases.root, "conversations").dict();
  const auto& chats = cases.at(cases.root, "chats").list().items;
  CHECK(chats.size() >= 10);
  jinja::Renderer writer({}, a_moment());
  for (const Value& chat : chats) {
    const std::string file(cases.at(chat, "template").text());
    const auto compiled = ChatTemplate::compile(read_golden(file));
    REQUIRE_MESSAGE(compiled.ok(), compiled.error().message);
    for (const auto& [name, conversation] : conversations.entries()) {
      const auto json = jinja::to_json(writer, conversation, {});
      REQUIRE(json.ok());
      check(compiled->render(json->text, {"<s>", "</s>", a_moment()}),
            cases.at(cases.at(chat, "expected"), name.text()),
            file + ": " + std::string(name.text()));
    }
  }
}

TEST_CASE("a file that names RWKV's form in place of a template has that form") {
  GgufWriter writer;
  writer.set_string("tokenizer.chat_template", "rwkv-world");
  const std::vector<std::byte> bytes = writer.bytes();
  const ChatTemplates templates = ChatTemplates::load(GgufFile::parse(bytes, "chat").value());
  const auto text = [&templates](std::string_view messages) {
    const auto rendered = templates.render("", "{\"messages\":[" + std::string(messages) + "]}",
                                           {"<s>", "<s>", a_moment()});
    REQUIRE_MESSAGE(rendered.ok(), (rendered.ok() ? "" : rendered.error().message));
    return rendered->text;
  };
  CHECK(text(R"({"role":"system","content":" Be brief. "},{"role":"user","content":"Hi\n"})") ==
        "System: Be brief.\n\nUser: Hi\n\nAssistant:");
  CHECK(text(R"({"role":"user","content":"a"},{"role":"assistant","content":"b"})") ==
        "User: a\n\nAssistant: b\n\n");
}

}  // namespace
}  // namespace hearth::models
