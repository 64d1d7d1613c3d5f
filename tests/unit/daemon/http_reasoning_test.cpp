// Reasoning that clients carry: sealed in items of the responses API, signed in blocks of
// Anthropic's, and bound to the daemon's key, the user and the model.

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "daemon/http/answers/api_answer.h"
#include "daemon/http/reasoning_seal.h"
#include "daemon/http/requests/token_request.h"
#include "ipc/schema/events.h"
#include "tests/sse_events.h"

namespace hearth::http {
namespace {

using Json = nlohmann::json;

ReasoningSeal::Key key_of(int number) {
  ReasoningSeal::Key key{};
  key[0] = std::byte(number);
  return key;
}
const ReasoningSeal kSeal(key_of(1), 1000);
const PromptRules kSealing{.volatile_lines = {}, .keeps_answers = false, .seal = kSeal};

TEST_CASE("a seal opens for its key and owner alone, and not if a byte differs") {
  const std::string text = "Hm.\nÄ \0 second line";
  const std::string sealed = kSeal.seal("f1", text);
  CHECK(ReasoningSeal::is_ours(sealed));
  CHECK(sealed.find("Hm") == std::string::npos);
  const auto opened = kSeal.open(sealed);
  REQUIRE(opened);
  CHECK(opened->model == "f1");
  CHECK(opened->text == text);
  CHECK(kSeal.open(kSeal.seal("", ""))->text.empty());
  CHECK(kSeal.seal("f1", text) != sealed);

  CHECK_FALSE(ReasoningSeal(key_of(2), 1000).open(sealed));
  CHECK_FALSE(ReasoningSeal(key_of(1), 1001).open(sealed));
  CHECK(ReasoningSeal(key_of(1), 1000).open(sealed));
  for (size_t bytes = 0; bytes < sealed.size(); ++bytes)
    CHECK_FALSE(kSeal.open(sealed.substr(0, bytes)));
  for (size_t i = 0; i < sealed.size(); ++i) {
    std::string forged = sealed;
    forged[i] = forged[i] == 'A' ? 'B' : 'A';
    CHECK_FALSE(kSeal.open(forged));
  }
  CHECK_FALSE(kSeal.open(sealed + "A"));
  CHECK_FALSE(kSeal.open(sealed + "\n"));
  CHECK_FALSE(kSeal.open("hr1_"));
  CHECK_FALSE(kSeal.open("hr1_%%%%"));
  CHECK_FALSE(kSeal.open("gAAAAA"));
}

TEST_CASE("a signature holds for its text, key and owner") {
  const std::string signature = kSeal.sign("f1", "Hm");
  CHECK(kSeal.check(signature, "Hm") == "f1");
  CHECK_FALSE(kSeal.check(signature, "Hm "));
  CHECK_FALSE(kSeal.check(signature, ""));
  CHECK_FALSE(ReasoningSeal(key_of(2), 1000).check(signature, "Hm"));
  CHECK_FALSE(ReasoningSeal(key_of(1), 1).check(signature, "Hm"));
  CHECK_FALSE(kSeal.check(signature.substr(0, signature.size() - 1), "Hm"));
  // Neither stands in for the other.
  CHECK_FALSE(kSeal.open(kSeal.sign("f1", "")));
  CHECK_FALSE(kSeal.check(kSeal.seal("f1", ""), ""));
}

Call parsed(Api api, const Json& body, const PromptRules& rules = kSealing) {
  Result<Call> call = parse_call(api, body.dump(), rules);
  REQUIRE_MESSAGE(call.ok(), (call.ok() ? "" : call.error().message));
  return std::move(call).value();
}
Error refused(Api api, const Json& body, const PromptRules& rules = kSealing) {
  const Result<Call> call = parse_call(api, body.dump(), rules);
  REQUIRE_FALSE_MESSAGE(call.ok(), body.dump());
  return call.error();
}

/// An answer "Yes" after the reasoning "Hm".
std::string answer_of(const Call& call) {
  const auto writer = make_answer_writer(call, "i-1", 42);
  std::string out;
  writer->written_by("f1");
  writer->started({.model = "tiny"}, &out);
  writer->reasoning(0, "H", &out);
  writer->reasoning(0, "m", &out);
  writer->delta(0, "Yes", {}, &out);
  writer->sample_done({.sample = 0, .reason = "stop"}, &out);
  ipc::DoneEvent done;
  done.model = "tiny";
  writer->done(done, &out);
  return out;
}

Json responses(Json input, bool stream = false) {
  return {{"input", std::move(input)},
          {"stream", stream},
          {"include", {"reasoning.encrypted_content"}}};
}

TEST_CASE("responses: a sealed item comes back as the reasoning of its model") {
  for (const bool stream : {false, true}) {
    CAPTURE(stream);
    const Call call = parsed(Api::kResponses, responses("a", stream));
    CHECK(call.ignored.empty());
    const std::string body = answer_of(call);
    const Json answer = stream ? tests::sse_events(body).back()["response"] : Json::parse(body);
    Json item = answer["output"][0];
    REQUIRE(item["type"] == "reasoning");
    CHECK(kSeal.open(item["encrypted_content"].get<std::string>())->text == "Hm");
    if (stream) {
      for (const Json& event : tests::sse_events(body)) {
        if (event["type"] == "response.output_item.added" && event["item"]["type"] == "reasoning") {
          CHECK_FALSE(event["item"].contains("encrypted_content"));
        }
        if (event["type"] == "response.output_item.done" && event["item"]["type"] == "reasoning") {
          CHECK(kSeal.open(event["item"]["encrypted_content"].get<std::string>()));
        }
      }
    }
    const auto next = [&] {
      Json input = Json::array({{{"role", "user"}, {"content", "a"}}, item, answer["output"][1]});
      input.push_back({{"role", "user"}, {"content", "b"}});
      return responses(std::move(input));
    };
    const Json want = Json::parse(R"([{"role":"user","content":"a"},
        {"role":"assistant","content":"Yes","reasoning_content":"Hm","reasoning_of":"f1"},
        {"role":"user","content":"b"}])");
    CHECK(Json::parse(parsed(Api::kResponses, next()).request.messages.text) == want);
    for (const Json& text : {Json(), Json::array()}) {  // the seal alone
      item["content"] = text;
      CHECK(Json::parse(parsed(Api::kResponses, next()).request.messages.text) == want);
    }
    // Another text, another user, a cut seal, one of another server.
    item["content"] = {{{"type", "reasoning_text"}, {"text", "Hm!"}}};
    CHECK(refused(Api::kResponses, next()).field == "input[1].content");
    item["content"] = nullptr;
    PromptRules other = kSealing;
    other.seal = ReasoningSeal(key_of(1), 1001);
    const Error error = refused(Api::kResponses, next(), other);
    CHECK(error.field == "input[1].encrypted_content");
    CHECK(error.code == ErrorCode::kInvalidArgument);
    std::string sealed = item["encrypted_content"];
    item["encrypted_content"] = sealed.substr(0, sealed.size() - 9);
    CHECK(refused(Api::kResponses, next()).field == "input[1].encrypted_content");
    item["encrypted_content"] = "gAAAA";
    CHECK(refused(Api::kResponses, next()).field == "input[1].encrypted_content");
    item["encrypted_content"] = 7;
    CHECK(refused(Api::kResponses, next()).field == "input[1].encrypted_content");
    // Without it, the text is the client's own.
    item.erase("encrypted_content");
    item["content"] = {{{"type", "reasoning_text"}, {"text", "Mine"}}};
    const Json own = Json::parse(parsed(Api::kResponses, next()).request.messages.text)[1];
    CHECK(own["reasoning_content"] == "Mine");
    CHECK_FALSE(own.contains("reasoning_of"));
  }
  const Json plain = Json::parse(answer_of(parsed(Api::kResponses, {{"input", "a"}})));
  CHECK_FALSE(plain["output"][0].contains("encrypted_content"));
}

TEST_CASE("responses: a kept conversation has sealed items, too") {
  PromptRules rules = kSealing;
  rules.keeps_answers = true;
  const auto continued = [&](const std::string& sealed) {
    Call call =
        parsed(Api::kResponses, {{"input", "b"}, {"previous_response_id", "resp_1"}}, rules);
    const Json items = {
        {"items",
         {{{"type", "reasoning"}, {"summary", Json::array()}, {"encrypted_content", sealed}}}}};
    return continue_call(std::move(call), items.dump(), rules);
  };
  const Result<Call> call = continued(kSeal.seal("f1", "Hm"));
  REQUIRE(call.ok());
  CHECK(Json::parse(call->request.messages.text)[0]["reasoning_content"] == "Hm");
  const Result<Call> forged = continued("hr1_");
  REQUIRE_FALSE(forged.ok());
  CHECK(forged.error().field == "previous_response_id[0].encrypted_content");
}

Json message(Json blocks, bool stream = false) {
  Json messages = Json::array({{{"role", "user"}, {"content", "a"}}});
  if (!blocks.empty()) {
    messages.push_back({{"role", "assistant"}, {"content", std::move(blocks)}});
    messages.push_back({{"role", "user"}, {"content", "b"}});
  }
  return {{"max_tokens", 9}, {"stream", stream}, {"messages", std::move(messages)}};
}

TEST_CASE("messages: thinking without a signature is left out") {
  // Nothing shows that a model here wrote it.
  const Json yes = {{"type", "text"}, {"text", "Yes"}};
  const Json signed_one = {
      {"type", "thinking"}, {"thinking", "Hm"}, {"signature", kSeal.sign("f1", "Hm")}};
  Json bare = {{"type", "thinking"}, {"thinking", "Mine"}};
  std::vector<Json> blocks = {bare};
  for (const Json& none : {Json(""), Json()}) {
    bare["signature"] = none;
    blocks.push_back(bare);
  }
  for (const Json& block : blocks) {
    CAPTURE(block.dump());
    const Call call = parsed(Api::kMessages, message(Json::array({block, yes})));
    CHECK(Json::parse(call.request.messages.text)[1] ==
          Json::parse(R"({"role":"assistant","content":"Yes"})"));
    CHECK(call.ignored == std::vector<std::string_view>{"thinking.signature"});
    // Next to a signed block, too, in whatever order.
    for (const Json& both : {Json::array({signed_one, block}), Json::array({block, signed_one})}) {
      const Call two = parsed(Api::kMessages, message(both));
      CHECK(Json::parse(two.request.messages.text)[1]["reasoning_content"] == "Hm");
    }
  }
  bare["signature"] = 7;
  CHECK(refused(Api::kMessages, message(Json::array({bare}))).field ==
        "messages[1].content[0].signature");
}

TEST_CASE("messages: thinking is signed, and its signature is checked") {
  for (const bool stream : {false, true}) {
    CAPTURE(stream);
    const std::string body = answer_of(parsed(Api::kMessages, message(Json::array(), stream)));
    std::string signature;
    if (stream) {
      std::vector<std::string> deltas;
      for (const Json& event : tests::sse_events(body)) {
        if (event["type"] != "content_block_delta") continue;
        deltas.push_back(event["delta"]["type"]);
        signature += event["delta"].value("signature", "");
      }
      CHECK(deltas == std::vector<std::string>{"thinking_delta", "thinking_delta",
                                               "signature_delta", "text_delta"});
    } else {
      signature = Json::parse(body)["content"][0]["signature"];
    }
    const auto block = [&](const std::string& text, const Json& signed_by) -> Json {
      return {{"type", "thinking"}, {"thinking", text}, {"signature", signed_by}};
    };
    const auto back = [&](const Json& first) {
      return message(Json::array({first, {{"type", "text"}, {"text", "Yes"}}}));
    };
    const auto assistant = [&](const Call& call) {
      return Json::parse(call.request.messages.text)[1];
    };
    const Call call = parsed(Api::kMessages, back(block("Hm", signature)));
    CHECK(call.ignored.empty());
    CHECK(assistant(call) ==
          Json::parse(R"({"role":"assistant","content":"Yes","reasoning_content":"Hm",
                          "reasoning_of":"f1"})"));
    Json other = back(block("Hm", signature));
    other.erase("max_tokens");
    CHECK(parse_count_tokens(other.dump(), kSealing).ok());
    CHECK_FALSE(parse_count_tokens(back(block("Hm!", signature)).dump(), kSealing).ok());

    CHECK(refused(Api::kMessages, back(block("Hm!", signature))).field ==
          "messages[1].content[0].signature");
    CHECK(refused(Api::kMessages, back(block("Hm", signature.substr(0, 40)))).field ==
          "messages[1].content[0].signature");
    PromptRules rules = kSealing;
    rules.seal = ReasoningSeal(key_of(1), 1001);
    CHECK(refused(Api::kMessages, back(block("Hm", signature)), rules).field ==
          "messages[1].content[0].signature");
    // Another server's thinking is left out.
    const Call foreign = parsed(Api::kMessages, back(block("Hm", "ErUB")));
    CHECK(assistant(foreign) == Json::parse(R"({"role":"assistant","content":"Yes"})"));
    CHECK(foreign.ignored == std::vector<std::string_view>{"thinking.signature"});
    // Blocks of one message are of one model.
    Json two = Json::array({block("Hm", signature), block("So", kSeal.sign("f1", "So"))});
    CHECK(assistant(parsed(Api::kMessages, message(two)))["reasoning_content"] == "HmSo");
    two[1] = block("So", kSeal.sign("f2", "So"));
    CHECK(refused(Api::kMessages, message(two)).field == "messages[1].content[1].signature");
  }
}

TEST_CASE("parameters about reasoning are known by the names that a request used") {
  using Names = std::vector<std::string_view>;
  const auto names = [](Api api, const char* members) {
    Json body = Json::parse(R"({"messages":[{"role":"user","content":"a"}]})");
    if (api == Api::kResponses) body = {{"input", "a"}};
    if (api == Api::kMessages) body["max_tokens"] = 9;
    if (is_ollama(api)) body["model"] = "m";
    body.update(Json::parse(members));
    return parsed(api, body).about_reasoning;
  };
  CHECK(names(Api::kChat, "{}").empty());
  CHECK(names(Api::kChat, R"({"reasoning_effort":"low","reasoning_budget":9})") ==
        Names{"reasoning_budget", "reasoning_effort"});
  CHECK(names(Api::kChat, R"({"enable_thinking":true})") == Names{"enable_thinking"});
  CHECK(names(Api::kChat, R"({"enable_thinking":false})").empty());
  CHECK(names(Api::kChat, R"({"reasoning_effort":"none"})").empty());
  CHECK(names(Api::kResponses, R"({"reasoning":{"effort":"high","max_tokens":9}})") ==
        Names{"reasoning.effort", "reasoning.max_tokens"});
  CHECK(names(Api::kMessages, R"({"thinking":{"type":"enabled","budget_tokens":9}})") ==
        Names{"thinking", "thinking.budget_tokens"});
  CHECK(names(Api::kMessages, R"({"output_config":{"effort":"low"}})") ==
        Names{"output_config.effort"});
  CHECK(names(Api::kMessages, R"({"thinking":{"type":"adaptive"}})").empty());
  CHECK(names(Api::kMessages, R"({"thinking":{"type":"disabled"}})").empty());
  CHECK(names(Api::kOllamaChat, R"({"think":true})") == Names{"think"});
  CHECK(names(Api::kOllamaChat, R"({"think":"low"})") == Names{"think"});
  CHECK(names(Api::kOllamaChat, R"({"think":false})").empty());
}

}  // namespace
}  // namespace hearth::http
