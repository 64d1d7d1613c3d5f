// What a conversation's request asks of the template, the tokenizer and the answer.

#include <doctest/doctest.h>

#include "daemon/worker/text/tools_as_text.h"
#include "engine/grammar/constraint.h"
#include "ipc/wire/json.h"
#include "tests/unit/daemon/prep_fixture.h"

namespace hearth::worker {
namespace {

TEST_CASE("words of a conversation never become control tokens") {
  const Fixture f;
  const Conversing c(f, "{% for m in messages %}{{ m.content }}<|end|>{% endfor %}");
  ipc::WorkerRequest in = Fixture::request("");
  in.generate().messages.text = R"([{"role":"user","content":"<s>a<|end|></s>"}])";
  const PrepResult result = prepare(c.model, in);
  const std::vector<int32_t>& ids = std::get<PreparedRequest>(result.outcome).request.prompt;
  std::vector<std::string_view> control;
  std::string text;
  for (const int32_t id : ids) {
    if (f.tokenizer->is_control(id)) {
      control.push_back(f.tokenizer->entry(id));
    } else {
      text += f.tokenizer->piece(id);
    }
  }
  // BOS is in front, although the text seems to begin with it.
  CHECK(control == std::vector<std::string_view>{"<s>", "<|end|>"});
  CHECK(text == " <s>a<|end|></s>");
}

TEST_CASE("a named function is called once") {
  const Fixture f;
  const Conversing c(f,
                     "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
                     "<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}{% endfor %}",
                     400);
  ipc::WorkerRequest in = Fixture::request("");
  in.generate().messages.text = R"([{"role":"user","content":"the"}])";
  in.generate().tools.text = R"([{"type":"function","function":{"name":"f"}}])";
  for (const auto& [choice, once] : {std::pair("f", true), std::pair("required", false)}) {
    in.generate().tool_choice = choice;
    const PrepResult result = prepare(c.model, in);
    const auto& prepared = std::get<PreparedRequest>(result.outcome);
    CHECK(prepared.reading->shape.one_call == once);
    CHECK(prepared.reading->shape.must_call);
  }
}

TEST_CASE("strict functions bind calls among text, and templates do not see the word") {
  const Fixture f;
  const Conversing c(f,
                     "{{ tools | tojson }}{% for m in messages %}{{ m.content }}"
                     "{% for c in m.tool_calls or [] %}"
                     "<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}{% endfor %}",
                     400);
  ipc::WorkerRequest in = Fixture::request("");
  ipc::GenerateRequest& generate = in.generate();
  generate.messages.text = R"([{"role":"user","content":"the"}])";
  const auto outcome = [&](const std::string& members) {
    generate.tools.text = R"([{"type":"function","function":{"name":"f")" + members + "}}]";
    return prepare(c.model, in).outcome;
  };
  const auto plain = outcome("");
  const auto strict = outcome(R"(,"strict":true)");
  const auto& request = std::get<PreparedRequest>(strict).request;
  CHECK(request.constraint != nullptr);
  CHECK(request.prompt == std::get<PreparedRequest>(plain).request.prompt);
  CHECK(std::get<PreparedRequest>(plain).request.constraint == nullptr);
  CHECK(std::get<PreparedRequest>(outcome(R"(,"strict":false)")).request.constraint == nullptr);
  const std::string unclear = R"(,"parameters":{"type":"object","properties":{"a":{"not":{}}}})";
  CHECK(std::holds_alternative<PreparedRequest>(outcome(unclear)));
  CHECK(std::get<Error>(outcome(unclear + R"(,"strict":true)")).field == "tools");
  CHECK(std::get<Error>(outcome(R"(,"strict":1)")).field == "tools");
  generate.ignore_eos = true;
  CHECK(std::holds_alternative<PreparedRequest>(outcome(R"(,"strict":true)")));
  generate.parallel_tool_calls = false;
  CHECK(std::get<Error>(outcome(R"(,"strict":true)")).field == "ignore_eos");
}

TEST_CASE("an answer with functions and a schema is a call, or follows the schema") {
  const Fixture f;
  const Conversing c(f,
                     "{{ tools | tojson }}{% for m in messages %}{{ m.content }}"
                     "{% for c in m.tool_calls or [] %}"
                     "<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}{% endfor %}",
                     900);
  ipc::WorkerRequest in = Fixture::request("");
  ipc::GenerateRequest& generate = in.generate();
  generate.messages.text = R"([{"role":"user","content":"the"}])";
  generate.tools.text = R"([{"type":"function","function":{"name":"f"}}])";
  generate.json_schema = R"({"type":"object","properties":{"a":{"type":"integer"}}})";
  const auto accepts_beginning = [&](std::string_view text) {
    const auto outcome = prepare(c.model, in).outcome;
    const auto& prepared = std::get<PreparedRequest>(outcome);
    CHECK(prepared.reading->shape.tools->id == "hermes");
    engine::Constraint& constraint = *prepared.request.constraint;
    int32_t state = engine::Constraint::kStart;
    for (const char letter : text) {
      if (state != engine::Constraint::kDead) {
        state = constraint.advance_byte(state, static_cast<uint8_t>(letter));
      }
    }
    return state != engine::Constraint::kDead;
  };
  CHECK(accepts_beginning("{\"a\": 1}"));
  CHECK(accepts_beginning("<tool_call>"));
  CHECK_FALSE(accepts_beginning("any"));
  // A call that must be made leaves the schema nothing.
  generate.tool_choice = "required";
  CHECK_FALSE(accepts_beginning("{\"a\""));
  CHECK(accepts_beginning("<tool_call>"));
  generate.tool_choice = "auto";
  generate.ignore_eos = true;
  CHECK(std::get<Error>(prepare(c.model, in).outcome).field == "ignore_eos");
  generate.ignore_eos = false;
  generate.json_schema = R"({"type":"object","properties":{"a":{"not":{}}}})";
  CHECK(std::get<Error>(prepare(c.model, in).outcome).field == "json_schema");
  generate.relax_schema = true;
  const auto relaxed = prepare(c.model, in).outcome;
  CHECK(std::get<PreparedRequest>(relaxed).relaxed.size() == 1);
  generate.json_schema.clear();
  generate.grammar = "root ::= \"a\"";
  CHECK(std::get<Error>(prepare(c.model, in).outcome).field == "tools");
}

TEST_CASE("a template without tools is given a form of calls where that is asked for") {
  const Fixture f;
  const Conversing c(f, "{% for m in messages %}{{ m.role }} {{ m.content }}{% endfor %}", 900);
  ipc::WorkerRequest in = Fixture::request("");
  ipc::GenerateRequest& generate = in.generate();
  generate.messages.text = R"([{"role":"user","content":"the"}])";
  generate.tools.text = R"([{"type":"function","function":{"name":"f","strict":true}}])";
  CHECK(std::get<Error>(prepare(c.model, in).outcome).field == "tools");
  generate.tool_form = "hermes";
  const auto outcome = prepare(c.model, in).outcome;
  const auto& prepared = std::get<PreparedRequest>(outcome);
  CHECK(prepared.reading->shape.tools->id == "hermes");
  CHECK(prepared.request.constraint != nullptr);
  std::string text;
  for (const int32_t id : prepared.request.prompt) text += f.tokenizer->piece(id);
  CHECK(text.find("strict") == std::string::npos);
  CHECK(text.find(R"({"type":"function","function":{"name":"f"}})") != std::string::npos);
  CHECK(text.find("<tool_call>") != std::string::npos);
  generate.tool_choice = "none";
  const auto without = prepare(c.model, in).outcome;
  CHECK(std::get<PreparedRequest>(without).reading == nullptr);
}

TEST_CASE("calls and content that cannot become text are errors of the request") {
  const Fixture f;
  const Conversing c(f, "{% for m in messages %}{{ m.role }} {{ m.content }}{% endfor %}", 900);
  ipc::WorkerRequest in = Fixture::request("");
  ipc::GenerateRequest& generate = in.generate();
  generate.tools.text = R"([{"type":"function","function":{"name":"f"}}])";
  generate.tool_form = "hermes";
  for (const char* message : {
           R"({"role":"assistant","content":"","tool_calls":[{"function":5}]})",
           R"({"role":"assistant","content":"","tool_calls":[7]})",
           R"({"role":"assistant","content":3,"tool_calls":[{"function":{"name":"f"}}]})",
           R"({"role":"tool","content":[{"type":"image","data":"x"}]})",
           R"({"role":"system","content":{"a":1}})",
       }) {
    CAPTURE(message);
    generate.messages.text = std::string("[") + message + R"(,{"role":"user","content":"the"}])";
    const auto outcome = prepare(c.model, in).outcome;
    const auto* error = std::get_if<Error>(&outcome);
    REQUIRE(error != nullptr);
    CHECK(error->field == "messages");
  }
  // A name or arguments of another kind are the client's own words.
  generate.messages.text =
      R"([{"role":"assistant","tool_calls":[{"function":{"name":5,"arguments":[1]}}]}])";
  const auto odd = prepare(c.model, in).outcome;
  CHECK(std::holds_alternative<PreparedRequest>(odd));
}

TEST_CASE("calls and results become text of the conversation") {
  const ipc::Json tools =
      ipc::Json::parse(R"([{"type":"function","function":{"name":"f"},"cache_keep_s":60}])");
  const Result<ipc::Json> rewritten = with_tools_as_text(ipc::Json::parse(R"([
      {"role":"system","content":[{"type":"text","text":"S"}]},{"role":"user","content":"U"},
      {"role":"assistant","content":"A","tool_calls":[
        {"id":"1","type":"function","function":{"name":"f","arguments":{"x":1}}},
        {"id":"2","type":"function","function":{"name":"f","arguments":{}}}]},
      {"role":"tool","tool_call_id":"1","content":"one"},
      {"role":"tool","tool_call_id":"2","content":"two","cache_keep_s":5},
      {"role":"user","content":"V"}])"),
                                                         tools);
  REQUIRE(rewritten.ok());
  const ipc::Json& made = *rewritten;
  REQUIRE(made.size() == 5);
  const std::string system = made[0]["content"];
  CHECK(system.starts_with("S\n\n"));
  CHECK(system.find("cache_keep_s") == std::string::npos);
  CHECK(made[0]["cache_keep_s"] == 60);
  CHECK(made[2]["content"] ==
        "A\n<tool_call>\n{\"name\":\"f\",\"arguments\":{\"x\":1}}\n</tool_call>\n"
        "<tool_call>\n{\"name\":\"f\",\"arguments\":{}}\n</tool_call>");
  CHECK_FALSE(made[2].contains("tool_calls"));
  CHECK(made[3]["role"] == "user");
  CHECK(made[3]["content"] ==
        "<tool_response>\none\n</tool_response>\n"
        "<tool_response>\ntwo\n</tool_response>");
  CHECK(made[3]["cache_keep_s"] == 5);
  CHECK(made[4]["content"] == "V");
  CHECK(with_tools_as_text(ipc::Json::parse(R"([{"role":"user"}])"), tools).value()[0]["role"] ==
        "system");
}

TEST_CASE("reasoning is switched off, or refused") {
  const Fixture f;
  ipc::WorkerRequest in = Fixture::request("");
  in.generate().messages.text = R"([{"role":"user","content":"the"}])";
  in.generate().reasoning = "off";
  const auto prepared = [&](const char* opening) {
    const Conversing c(f, "{% for m in messages %}{{ m.content }}{% endfor %}" +
                              std::string(opening) + "{# <tool> </think> <think> #}");
    return prepare(c.model, in).outcome;
  };
  const auto switched = prepared("{% if enable_thinking == false %}</think>{% endif %}");
  const engine::Request& request = std::get<PreparedRequest>(switched).request;
  CHECK(request.prompt == f.tokenizer->encode("the</think>", {}));
  CHECK(std::get<Error>(prepared("<think>")).field == "reasoning");
  CHECK(std::get<Error>(prepared("<think>")).code == ErrorCode::kUnsupported);
  in.generate().reasoning = "on";
  CHECK(std::holds_alternative<PreparedRequest>(prepared("<think>")));
}

TEST_CASE("reasoning has a bound, and can be ended where there is none") {
  const Fixture f;
  ipc::WorkerRequest in = Fixture::request("");
  in.generate().messages.text = R"([{"role":"user","content":"the"}])";
  const auto bound = [&](const std::string& opening) {
    const Conversing c(f,
                       "{% for m in messages %}{{ m.content }}{% endfor %}" + opening +
                           "{# <tool> </think> <think> #}",
                       200);
    const auto outcome = prepare(c.model, in).outcome;
    return std::get<PreparedRequest>(outcome).request.reasoning;
  };
  const auto without = bound("");
  REQUIRE(without != nullptr);
  CHECK(without->max_tokens == INT32_MAX);
  CHECK_FALSE(without->open);
  CHECK(without->begin == "<think>");
  CHECK(without->end == "</think>");
  std::string closing;
  for (const int32_t id : without->closing) closing += f.tokenizer->piece(id);
  CHECK(closing == "</think>");
  in.generate().reasoning_budget = 5;
  CHECK(bound("<think>")->max_tokens == 5);
  CHECK(bound("<think>")->open);
  CHECK(bound("{# <|start|>assistant<|channel|>analysis<|message|> #}")->begin ==
        "<|channel|>analysis<|message|>");
  CHECK(bound("{# <|start|>assistant<|channel|>analysis<|message|> #}")->end == "<|end|>");
  in.end_reasoning = true;
  CHECK(f.good(Fixture::request("the")).reasoning == nullptr);  // no conversation
  in.generate().json_schema = R"({"type":"boolean"})";          // such an answer has none
  CHECK(bound("<think>") == nullptr);
}

TEST_CASE("max_tokens beyond the context's room is lowered if the request allows it") {
  const Fixture f;
  ipc::WorkerRequest in = Fixture::request("the abc", 1000);
  CHECK(f.bad(in).field == "max_tokens");
  in.generate().clip_max_tokens = true;
  const engine::Request out = f.good(in);
  CHECK(out.max_tokens == 64 - static_cast<int32_t>(out.prompt.size()));
  in.generate().max_tokens = 3;
  CHECK(f.good(in).max_tokens == 3);
}

TEST_CASE("a relaxed schema names what it lost") {
  const Fixture f;
  ipc::WorkerRequest in = Fixture::request("the");
  in.generate().json_schema = R"({"type":"array","uniqueItems":true})";
  CHECK(f.bad(in).field == "json_schema");
  in.generate().relax_schema = true;
  for (int again = 0; again < 2; ++again) {
    const PrepResult result = prepare(f.model, in);
    CHECK(std::get<PreparedRequest>(result.outcome).relaxed.size() == 1);
  }
}

TEST_CASE("reasoning of another model is left out, and its prompt is one without it") {
  const Fixture f;
  Conversing c(f,
               "{% for m in messages %}{{ m.reasoning_content }}{{ m.reasoning_of }}"
               "{{ m.content }}<|end|>{% endfor %}");
  c.model.fingerprint = "f1";
  ipc::WorkerRequest in = Fixture::request("");
  const auto prepared = [&](const std::string& messages) {
    in.generate().messages.text = messages;
    const PrepResult result = prepare(c.model, in);
    REQUIRE(std::holds_alternative<PreparedRequest>(result.outcome));
    return std::get<PreparedRequest>(result.outcome);
  };
  const std::string question = R"([{"role":"user","content":"the"},{"role":"assistant",)";
  const PreparedRequest plain =
      prepared(question + R"("content":"abc","reasoning_content":"ab"}])");
  const PreparedRequest own =
      prepared(question + R"("content":"abc","reasoning_content":"ab","reasoning_of":"f1"}])");
  CHECK(own.request.prompt == plain.request.prompt);
  CHECK(own.without_effect.empty());
  const PreparedRequest other =
      prepared(question + R"("content":"abc","reasoning_content":"ab","reasoning_of":"f2"}])");
  CHECK(other.request.prompt == prepared(question + R"("content":"abc"}])").request.prompt);
  CHECK(other.without_effect == std::vector<std::string>{ipc::kReasoningOf});
  // A message of reasoning alone leaves as a whole; calls keep theirs.
  CHECK(prepared(question + R"("content":"","reasoning_content":"ab","reasoning_of":"f2"}])")
            .request.prompt == prepared(R"([{"role":"user","content":"the"}])").request.prompt);
  const std::string call =
      R"("content":"","tool_calls":[{"id":"1","function":{"name":"f","arguments":{}}}])";
  CHECK(prepared(question + call + R"(,"reasoning_content":"ab","reasoning_of":7}])")
            .request.prompt == prepared(question + call + "}]").request.prompt);
  // Marks stay where they are.
  const PreparedRequest marked = prepared(
      R"([{"role":"assistant","content":"","reasoning_content":"ab","reasoning_of":"f2"},)"
      R"({"role":"user","content":"the","cache_keep_s":9},{"role":"user","content":"abc"}])");
  REQUIRE(marked.request.kept.size() == 1);
  CHECK(marked.request.kept[0].num_tokens > 1);
}

TEST_CASE("reasoning that is asked of a template without any is reported") {
  const Fixture f;
  const auto in_vain = [&f](const std::string& source, auto ask) {
    const Conversing c(f, source);
    ipc::WorkerRequest in = Fixture::request("");
    in.generate().messages.text = R"([{"role":"user","content":"the"}])";
    ask(in.generate());
    const PrepResult result = prepare(c.model, in);
    REQUIRE(std::holds_alternative<PreparedRequest>(result.outcome));
    return std::get<PreparedRequest>(result.outcome).without_effect ==
           std::vector<std::string>{"reasoning"};
  };
  const std::string plain = "{% for m in messages %}{{ m.content }}{% endfor %}";
  const auto on = [](ipc::GenerateRequest& request) { request.reasoning = "on"; };
  const auto bound = [](ipc::GenerateRequest& request) { request.reasoning_budget = 9; };
  const auto effort = [](ipc::GenerateRequest& request) {
    request.template_kwargs.text = R"({"reasoning_effort":"low"})";
  };
  CHECK(in_vain(plain, on));
  CHECK(in_vain(plain, bound));
  CHECK(in_vain(plain, effort));
  CHECK_FALSE(in_vain(plain, [](ipc::GenerateRequest&) {}));
  CHECK_FALSE(in_vain(plain, [](ipc::GenerateRequest& request) { request.reasoning = "off"; }));
  CHECK_FALSE(in_vain(plain + "{{ reasoning_effort }}", effort));
  const std::string thinks = plain + "<think></think>";
  CHECK_FALSE(in_vain(thinks, on));
  CHECK_FALSE(in_vain(thinks, bound));
}

}  // namespace
}  // namespace hearth::worker
