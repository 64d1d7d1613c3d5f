// /v1/embeddings and /v1/rerank.

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "daemon/http/requests/api_rerank.h"
#include "ipc/text/base64.h"

namespace hearth::http {
namespace {

TEST_CASE("embeddings: texts and tokens, and unsupported options by name") {
  const auto parsed = [](std::string_view body) {
    Result<EmbeddingsCall> call = parse_embeddings(std::string(body));
    REQUIRE_MESSAGE(call.ok(), body);
    return std::move(call).value();
  };
  using Texts = std::vector<std::string>;
  using Ids = std::vector<std::vector<int32_t>>;
  CHECK(parsed(R"({"model":"m","input":"a"})").request.texts == Texts{"a"});
  CHECK(parsed(R"({"model":"m","input":"a"})").request.model == "m");
  CHECK_FALSE(parsed(R"({"input":"a"})").answer.base64);
  CHECK(parsed(R"({"input":["a","b"],"encoding_format":"base64"})").answer.base64);
  CHECK(parsed(R"({"input":["a","b"],"user":"u","dimensions":null})").request.texts ==
        Texts{"a", "b"});
  CHECK(parsed(R"({"input":[1,2]})").request.ids == Ids{{1, 2}});
  CHECK(parsed(R"({"input":[[1],[2,3]]})").request.ids == Ids{{1}, {2, 3}});
  CHECK(parsed(R"({"input":"a","pooling":"mean","normalize":false})").request.pooling == "mean");
  const auto refused = [](std::string_view body, std::string_view field, ErrorCode code) {
    const Result<EmbeddingsCall> call = parse_embeddings(std::string(body));
    REQUIRE_FALSE_MESSAGE(call.ok(), body);
    CHECK_MESSAGE(call.error().field == field, body);
    CHECK_MESSAGE(call.error().code == code, body);
    CHECK(call.error().message.starts_with(std::string(field) + ": "));
  };
  constexpr auto kBad = ErrorCode::kInvalidArgument;
  refused(R"({"model":"m"})", "input", kBad);
  refused(R"({"input":[]})", "input", kBad);
  refused(R"({"input":7})", "input", kBad);
  refused(R"({"input":["a",1]})", "input", kBad);
  refused(R"({"input":[[1],[]]})", "input", kBad);
  refused(R"({"input":[-1]})", "input", kBad);
  refused(R"({"input":"a","encoding_format":"int8"})", "encoding_format", kBad);
  refused(R"({"input":"a","pooling":"rank"})", "pooling", kBad);
  refused(R"({"input":"a","dimensions":"8"})", "dimensions", kBad);
  refused(R"({"input":"a","nonesuch":8})", "nonesuch", ErrorCode::kUnknownField);
  CHECK_FALSE(parse_embeddings("[]").ok());

  const std::string one = ipc::base64_of_floats(std::vector<float>{0.5f, -0.1f});
  const ipc::EmbedReply reply{"m", 2, {3, 4}, {one, one}};
  CHECK(vectors_body(reply, {}).value() ==
        R"({"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5,-0.1]},)"
        R"({"object":"embedding","index":1,"embedding":[0.5,-0.1]}],"model":"m",)"
        R"("usage":{"prompt_tokens":7,"total_tokens":7}})");
  const std::string in_base64 = vectors_body(reply, {.base64 = true}).value();
  CHECK(in_base64.find("\"embedding\":\"" + one + "\"") != std::string::npos);
}

TEST_CASE("rerank: documents in, the best first out") {
  const auto parsed = [](std::string_view body) {
    Result<EmbeddingsCall> call = parse_rerank(std::string(body));
    REQUIRE_MESSAGE(call.ok(), body);
    return std::move(call).value();
  };
  using Texts = std::vector<std::string>;
  const EmbeddingsCall all =
      parsed(R"({"model":"m","query":"q","documents":["a",{"text":"b"}],"user":"u"})");
  CHECK(all.request.model == "m");
  CHECK(all.request.query == "q");
  CHECK(all.request.texts == Texts{"a", "b"});
  CHECK(all.request.normalize);
  CHECK(all.answer.ranking->top_n == 2);
  CHECK(all.answer.ranking->documents.empty());
  const EmbeddingsCall best = parsed(
      R"({"query":"q","documents":["a","b","c"],"top_n":2,"return_documents":true,"raw_scores":true})");
  CHECK_FALSE(best.request.normalize);
  const auto one = [](float score) { return ipc::base64_of_floats(std::vector<float>{score}); };
  const ipc::EmbedReply reply{"m", 1, {3, 4, 5}, {one(0.25f), one(-1), one(0.5f)}};
  CHECK(vectors_body(reply, best.answer).value() ==
        R"({"object":"list","model":"m","results":[{"index":2,"relevance_score":0.5,)"
        R"("document":{"text":"c"}},{"index":0,"relevance_score":0.25,"document":{"text":"a"}}],)"
        R"("usage":{"prompt_tokens":12,"total_tokens":12}})");
  const auto refused = [](std::string_view body, std::string_view field, ErrorCode code) {
    const Result<EmbeddingsCall> call = parse_rerank(std::string(body));
    REQUIRE_FALSE_MESSAGE(call.ok(), body);
    CHECK_MESSAGE(call.error().field == field, body);
    CHECK_MESSAGE(call.error().code == code, body);
  };
  constexpr auto kBad = ErrorCode::kInvalidArgument;
  refused(R"({"documents":["a"]})", "query", kBad);
  refused(R"({"query":"q"})", "documents", kBad);
  refused(R"({"query":"q","documents":[]})", "documents", kBad);
  refused(R"({"query":"q","documents":[7]})", "documents[0]", kBad);
  refused(R"({"query":"q","documents":["a"],"top_n":0})", "top_n", kBad);
  refused(R"({"query":"q","documents":["a"],"nonesuch":0})", "nonesuch", ErrorCode::kUnknownField);
}

}  // namespace
}  // namespace hearth::http
