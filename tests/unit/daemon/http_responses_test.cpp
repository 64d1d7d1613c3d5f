// Kept answers of the responses API: `store` and `previous_response_id`, the shape of what is kept,
// and its addresses.

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "daemon/http/answers/api_answer.h"
#include "daemon/http/routes.h"
#include "ipc/schema/events.h"
#include "tests/sse_events.h"

namespace hearth::http {
namespace {

using Json = nlohmann::json;

const PromptRules kKeeps{.volatile_lines = {}, .keeps_answers = true};

Call parsed(const std::string& body, const PromptRules& rules = kKeeps) {
  Result<Call> call = parse_call(Api::kResponses, body, rules);
  REQUIRE_MESSAGE(call.ok(), body << (call.ok() ? "" : call.error().message));
  return std::move(call).value();
}
Error refused(const std::string& body, const PromptRules& rules = kKeeps) {
  const Result<Call> call = parse_call(Api::kResponses, body, rules);
  REQUIRE_FALSE_MESSAGE(call.ok(), body);
  return call.error();
}

TEST_CASE("store: true where answers are kept, unless the request declines") {
  const Call call = parsed(R"({"input":"a"})");
  CHECK(call.store);
  CHECK(Json::parse(call.kept_input) ==
        Json::parse(R"([{"type":"message","role":"user","content":"a"}])"));
  CHECK(parsed(R"({"input":"a","store":true})").store);
  CHECK(parsed(R"({"input":"a","store":null})").store);
  const Call declined = parsed(R"({"input":"a","store":false})");
  CHECK_FALSE(declined.store);
  CHECK(declined.kept_input.empty());
  CHECK(declined.ignored.empty());
  CHECK(refused(R"({"input":"a","store":1})").field == "store");

  CHECK_FALSE(parsed(R"({"input":"a"})", {}).store);
  CHECK_FALSE(parsed(R"({"input":"a","store":false})", {}).store);
  CHECK(refused(R"({"input":"a","store":true})", {}).code == ErrorCode::kUnsupported);
  const Error off = refused(R"({"input":"a","previous_response_id":"resp_1"})", {});
  CHECK(off.code == ErrorCode::kUnsupported);
  CHECK(off.field == "previous_response_id");
  CHECK(refused(R"({"input":"a","previous_response_id":7})").field == "previous_response_id");
  CHECK_FALSE(parsed(R"({"input":"a","previous_response_id":null})").unread);
}

TEST_CASE("what is kept is the input as it was sent, with lines that the prompt loses") {
  const PromptRules rules{.volatile_lines = {"x-hash: *"}, .keeps_answers = true};
  const Call call = parsed(
      R"({"instructions":"x-hash: 1\nbe","input":[{"role":"system","content":"x-hash: 2\nso"},
          {"role":"user","content":[{"type":"input_text","text":"a"}]}]})",
      rules);
  CHECK(call.volatile_lines == 2);
  CHECK(call.instructions == "be");
  CHECK(Json::parse(call.kept_input)[0]["content"] == "x-hash: 2\nso");
  CHECK(Json::parse(call.kept_input)[1]["content"][0]["text"] == "a");
}

TEST_CASE("a continued conversation has the prompt of one that is sent again") {
  // Items in the shape of answers: with ids, statuses and annotations.
  const std::string earlier =
      R"({"type":"message","role":"user","content":"weather?"},
         {"type":"reasoning","id":"rs_1","status":"completed","summary":[],
          "content":[{"type":"reasoning_text","text":"hm"}]},
         {"type":"message","id":"msg_1","status":"completed","role":"assistant",
          "content":[{"type":"output_text","text":"let me see","annotations":[]}]},
         {"type":"function_call","id":"fc_1_0","call_id":"c1","name":"f","arguments":"{\"a\": 1.50}",
          "status":"completed"})";
  const std::string own = R"({"type":"function_call_output","call_id":"c1","output":"rain"},
                             {"role":"user","content":"and \u00e4?"})";
  const std::string more = R"("model":"m","instructions":"be","temperature":0)";
  Call call = parsed("{" + more + R"(,"previous_response_id":"resp_1","input":[)" + own + "]}");
  REQUIRE(call.unread);
  CHECK(call.previous_response_id == "resp_1");
  Result<Call> continued = continue_call(std::move(call), R"({"items":[)" + earlier + "]}", kKeeps);
  REQUIRE_MESSAGE(continued.ok(), continued.error().message);
  const Call again = parsed("{" + more + R"(,"input":[)" + earlier + "," + own + "]}");
  CHECK(continued->request == again.request);
  CHECK(continued->request.messages.text == again.request.messages.text);
  CHECK(continued->previous_response_id == "resp_1");
  CHECK(continued->store);
  CHECK(Json::parse(continued->kept_input).size() == 2);
  CHECK_FALSE(continued->unread);

  // A text, and nothing of earlier instructions.
  call = parsed(R"({"model":"m","previous_response_id":"resp_1","input":"so?","store":false})");
  continued = continue_call(std::move(call), R"({"items":[)" + earlier + "]}", kKeeps);
  REQUIRE(continued.ok());
  CHECK(continued->request ==
        parsed(R"({"model":"m","input":[)" + earlier + R"(,{"role":"user","content":"so?"}]})")
            .request);
  CHECK_FALSE(continued->store);
}

TEST_CASE("errors in a continued conversation count the request's own items") {
  const auto problem = [](const std::string& own, const std::string& earlier) {
    const Result<Call> call = continue_call(
        parsed(R"({"previous_response_id":"resp_1","input":)" + own + "}"), earlier, kKeeps);
    REQUIRE_FALSE(call.ok());
    return call.error();
  };
  const std::string fine = R"({"items":[{"role":"user","content":"a"}]})";
  CHECK(problem(R"([{"role":"user"}])", fine).field == "input[0].content");
  CHECK(problem(R"([7])", fine).field == "input[0]");
  CHECK(problem("7", fine).field == "input");
  CHECK(problem(R"("b")", R"({"items":[{"role":"x"}]})").field == "previous_response_id[0].role");
  CHECK(problem(R"("b")", R"({"items":[)").field == "previous_response_id");
}

TEST_CASE("whole and streamed answers keep the same, and report it") {
  for (const bool stream : {false, true}) {
    CAPTURE(stream);
    Call call = parsed(R"({"model":"m","input":"a"})");
    call.stream = stream;
    call.previous_response_id = "resp_0";
    const auto writer = make_answer_writer(call, "i-1", 42);
    std::string out;
    ipc::StartedEvent started;
    started.model = "tiny";
    writer->started(started, &out);
    writer->reasoning(0, "hm", &out);
    writer->delta(0, "b", {}, &out);
    ipc::SampleDoneEvent sample;
    sample.reason = "length";
    writer->sample_done(sample, &out);
    ipc::DoneEvent done;
    done.model = "tiny";
    writer->done(done, &out);
    const KeptResponse kept = writer->take_kept();
    CHECK(kept.id == "resp_i-1");
    CHECK(kept.previous_id == "resp_0");
    CHECK(kept.created_s == 42);
    const Json answer = stream ? tests::sse_events(out).back()["response"] : Json::parse(out);
    CHECK(answer["store"] == true);
    CHECK(answer["previous_response_id"] == "resp_0");
    CHECK(Json::parse(kept.output) == answer["output"]);
    Json head = answer;
    head.erase("output");
    CHECK(Json::parse(kept.head) == head);
    CHECK(head["status"] == "incomplete");
    CHECK(answer["output"].size() == 2);
  }
}

TEST_CASE("the items of a kept input are listed in pages, complete and with ids") {
  const std::string kept = R"({"items":[{"role":"user","content":"a"},
      {"type":"message","id":"msg_x","role":"assistant","content":"b"},
      {"type":"function_call_output","call_id":"c","output":"d"}]})";
  const auto list = [&](const std::string& query) {
    const Result<ItemPage> page = parse_item_page(query, true);
    REQUIRE_MESSAGE(page.ok(), query);
    const Result<std::string> body = input_items_body(kept, "resp_i-9", *page);
    REQUIRE(body.ok());
    return Json::parse(*body);
  };
  const Json all = list("order=asc");
  CHECK(all["object"] == "list");
  CHECK(all["has_more"] == false);
  REQUIRE(all["data"].size() == 3);
  CHECK(all["data"][0]["id"] == "msg_i-9_0");
  CHECK(all["data"][0]["content"][0] == Json::parse(R"({"type":"input_text","text":"a"})"));
  CHECK(all["data"][1]["id"] == "msg_x");
  CHECK(all["data"][1]["content"][0]["type"] == "output_text");
  CHECK(all["data"][2]["id"] == "fco_i-9_2");
  CHECK(all["first_id"] == "msg_i-9_0");
  CHECK(all["last_id"] == "fco_i-9_2");
  CHECK(list("")["data"][0]["id"] == "fco_i-9_2");
  const Json page = list("limit=1&order=desc&after=fco_i-9_2");
  CHECK(page["data"][0]["id"] == "msg_x");
  CHECK(page["has_more"] == true);
  const Json last = list("after=msg_i-9_0");
  CHECK(last["data"].empty());
  CHECK(last["first_id"].is_null());
  for (const char* query : {"limit=0", "limit=101", "limit=a", "limit=", "order=up", "before=a"}) {
    CAPTURE(query);
    CHECK_FALSE(parse_item_page(query, true).ok());
  }
  CHECK(parse_item_page("include%5B%5D=a&include=b&stream=false", false).ok());
  CHECK_FALSE(parse_item_page("limit=2", false).ok());
  CHECK_FALSE(parse_item_page("stream=true", false).ok());
  CHECK(input_items_body(kept, "resp_i-9", {.after = "msg_y"}).error().field == "after");
  CHECK_FALSE(input_items_body("[]", "resp_i-9", {}).ok());
}

TEST_CASE("the addresses of kept answers") {
  const Rules rules{.hosts = HostRules::of_unix_socket({}), .origins = {}};
  const auto routed = [&](const std::string& method, const std::string& target, Route* out) {
    HttpRequest head;
    head.method = method;
    head.target = target;
    head.hosts = {"localhost"};
    const std::optional<Refusal> refusal = route(rules, head, out);
    return refusal ? refusal->status : 200;
  };
  Route out;
  for (const char* path : {"/v1/responses/resp_a", "/v1/responses/resp_a/", "/responses/resp_a"}) {
    for (const char* method : {"GET", "HEAD"}) {
      CHECK(routed(method, path, &out) == 200);
      CHECK(out.action == Action::kResponse);
      CHECK(out.name == "resp_a");
    }
    CHECK(routed("DELETE", path, &out) == 200);
    CHECK(out.action == Action::kRemoveResponse);
  }
  CHECK(routed("GET", "/v1/responses/resp_a/input_items?limit=2", &out) == 200);
  CHECK(out.action == Action::kResponseInput);
  CHECK(out.name == "resp_a");
  CHECK(out.query == "limit=2");
  CHECK(routed("POST", "/v1/responses/resp_a", &out) == 405);
  CHECK(routed("DELETE", "/v1/responses/resp_a/input_items", &out) == 405);
  CHECK(routed("POST", "/v1/responses/resp_a/cancel", &out) == 404);
  CHECK(routed("GET", "/v1/responses", &out) == 405);
  CHECK(routed("GET", "/v1/responses/", &out) == 405);
}

}  // namespace
}  // namespace hearth::http
