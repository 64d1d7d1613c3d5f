// Requests with a prediction of the answer, or with the text after it.

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "daemon/http/answers/api_answer.h"
#include "daemon/http/requests/api_request.h"
#include "tests/unit/daemon/accepted_call.h"

namespace hearth::http {
namespace {

using Json = nlohmann::json;

TEST_CASE("a prediction and the text after the answer arrive as text") {
  const Call gap =
      accepted(Api::kCompletions, R"({"prompt":"a","suffix":"b","prediction":"c","max_tokens":4})");
  CHECK(gap.request.prompt == "a");
  CHECK(gap.request.suffix == "b");
  CHECK(gap.request.prediction == "c");
  const std::string begin = R"({"messages":[{"role":"user","content":"a"}],"prediction":)";
  CHECK(accepted(Api::kChat, begin + R"({"type":"content","content":"b c"}})").request.prediction ==
        "b c");
  CHECK(accepted(Api::kChat, begin + R"({"type":"content","content":[{"type":"text","text":"b"},
        {"type":"text","text":"c"}]}})")
            .request.prediction == "bc");
  CHECK(accepted(Api::kChat, begin + "null}").request.prediction.empty());
}

TEST_CASE("usage has what became of a prediction's tokens") {
  Call call = accepted(Api::kChat, R"({"messages":[{"role":"user","content":"a"}]})");
  ipc::DoneEvent done;
  done.finish_reasons = {"stop"};
  done.speculation.by = {{"lookup", 9, 4}, {"prediction", 30, 21}};
  const auto details = [&] {
    std::string out;
    make_answer_writer(call, "1", 5)->done(done, &out);
    return Json::parse(out)["usage"]["completion_tokens_details"];
  };
  CHECK_FALSE(details().contains("accepted_prediction_tokens"));
  call.request.prediction = "x";
  CHECK(details()["accepted_prediction_tokens"] == 21);
  CHECK(details()["rejected_prediction_tokens"] == 9);
}

TEST_CASE("a prediction or a suffix of another form is refused by name") {
  struct Case {
    Api api;
    const char* body;
    const char* field;
    ErrorCode code = ErrorCode::kInvalidArgument;
  };
  constexpr auto kInvalid = ErrorCode::kInvalidArgument;
  constexpr auto kNot = ErrorCode::kUnsupported;
  const Case cases[] = {
      {Api::kCompletions, R"({"prompt":"a","suffix":7})", "suffix", kInvalid},
      {Api::kCompletions, R"({"prompt":"a","prediction":{"type":"content"}})", "prediction",
       kInvalid},
      {Api::kChat, R"({"messages":[{"role":"user","content":"a"}],"prediction":"b"})", "prediction",
       kInvalid},
      {Api::kChat,
       R"({"messages":[{"role":"user","content":"a"}],"prediction":{"type":"content"}})",
       "prediction.content", kInvalid},
      {Api::kChat,
       R"({"messages":[{"role":"user","content":"a"}],"prediction":{"type":"x","content":""}})",
       "prediction.type", kNot},
  };
  for (const Case& each : cases) {
    const Result<Call> call = parse_call(each.api, each.body);
    REQUIRE_FALSE_MESSAGE(call.ok(), each.body);
    CHECK_MESSAGE(call.error().field == each.field, each.body);
    CHECK_MESSAGE(call.error().code == each.code, each.body);
  }
}

}  // namespace
}  // namespace hearth::http
