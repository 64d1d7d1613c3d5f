#include "daemon/http/requests/api_rerank.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "daemon/http/requests/field_lists.h"
#include "daemon/http/requests/request_members.h"
#include "ipc/text/base64.h"
#include "ipc/wire/codec.h"
#include "ipc/wire/json.h"

namespace hearth::http {
namespace {

/// Moves the documents' texts into `texts`.
void take_documents(Members& in, Json& texts) {
  Json* const documents = in.take("documents");
  if (documents == nullptr) return in.invalid("documents", "absent, want a list of texts");
  if (!documents->is_array() || documents->empty()) {
    return in.wrong("documents", *documents, "a list of texts");
  }
  for (size_t i = 0; i < documents->size() && !in.failed(); ++i) {
    Json& from = (*documents)[i];
    const std::string path = fmt::format("documents[{}]", i);
    if (from.is_string()) {
      texts.push_back(std::move(from));
    } else if (from.is_object() && from.contains("text") && from["text"].is_string()) {
      texts.push_back(std::move(from["text"]));
    } else {
      in.wrong(path, from, "a text, or an object with a text");
    }
  }
}

}  // namespace

Result<EmbeddingsCall> parse_rerank(std::string body) {
  HEARTH_ASSIGN_OR_RETURN(ipc::LargeJson object, parse_body_text(std::move(body)));
  EmbeddingsCall call;
  ipc::LargeJson request(Json::object());
  Members in(object);
  request["verb"] = "embed";
  in.pass("model", request);
  if (auto query = in.text("query")) {
    request["query"] = *std::move(query);
  } else {
    in.invalid("query", "absent, want a text");
  }
  Json texts = Json::array();
  take_documents(in, texts);
  Ranking ranking;
  ranking.top_n = texts.size();
  if (const Json* most = in.take("top_n")) {
    if (!most->is_number_unsigned() || *most == 0) {
      in.wrong("top_n", *most, "an integer from 1");
    } else {
      ranking.top_n = std::min<uint64_t>(ranking.top_n, most->get<uint64_t>());
    }
  }
  if (in.flag("return_documents", false)) {
    for (const Json& text : texts) ranking.documents.push_back(text.get<std::string>());
  }
  request["normalize"] = !in.flag("raw_scores", false);
  in.text("user");  // names an end user; does not change the answer
  HEARTH_TRY(in.finish());
  request["texts"] = std::move(texts);
  call.answer.ranking = std::make_shared<const Ranking>(std::move(ranking));
  Result<ipc::ClientRequest> decoded = ipc::request_from_json(request);
  if (!decoded) {
    Error error = decoded.take_error();
    if (error.field == "texts") {
      if (error.message.starts_with("texts")) error.message.replace(0, 5, "documents");
      error.field = "documents";
    }
    return error;
  }
  call.request = std::get<ipc::EmbedRequest>(std::move(decoded).value());
  return call;
}

std::string rerank_body(const ipc::EmbedReply& reply, const Ranking& ranking) {
  std::vector<float> scores;
  for (const std::string& vector : reply.vectors) {
    const auto values = ipc::floats_of_base64(vector);
    scores.push_back(values && !values->empty() ? values->front() : 0);
  }
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  order.resize(std::min<size_t>(order.size(), ranking.top_n));
  std::string out =
      fmt::format(R"({{"object":"list","model":{},"results":[)", ipc::json_quote(reply.model));
  for (const size_t i : order) {
    if (out.back() == '}') out += ',';
    out += fmt::format(R"({{"index":{},"relevance_score":{})", i, scores[i]);
    if (i < ranking.documents.size()) {
      out += fmt::format(R"(,"document":{{"text":{}}})", ipc::json_quote(ranking.documents[i]));
    }
    out += '}';
  }
  const int64_t tokens =
      std::accumulate(reply.prompt_tokens.begin(), reply.prompt_tokens.end(), int64_t{0});
  return out +
         fmt::format(R"(],"usage":{{"prompt_tokens":{},"total_tokens":{}}}}})", tokens, tokens);
}

}  // namespace hearth::http
