#include "daemon/http/requests/api_embeddings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <utility>

#include "daemon/http/requests/api_rerank.h"
#include "daemon/http/requests/request_members.h"
#include "ipc/text/base64.h"
#include "ipc/wire/codec.h"
#include "ipc/wire/json.h"

namespace hearth::http {
namespace {

Error invalid(std::string_view field, std::string_view what) {
  return Error::invalid(fmt::format("{}: {}", field, what), std::string(field));
}

// A list of numbers that parse back to exactly the same floats.
void append_numbers(std::string_view vector, std::string* out) {
  const auto values = ipc::floats_of_base64(vector);
  *out += '[';
  std::array<char, 32> text;
  for (size_t i = 0; values && i < values->size(); ++i) {
    if (i > 0) *out += ',';
    const auto end = std::to_chars(text.data(), text.data() + text.size(), (*values)[i]).ptr;
    out->append(text.data(), end);
  }
  *out += ']';
}

/// Converts the input to the daemon's `texts` or `ids`.
Result<void> take_input(Json& input, Json& request) {
  const auto integer = [](const Json& value) { return value.is_number_integer(); };
  if (input.is_string()) {
    request["texts"] = Json::array({std::move(input)});
    return {};
  }
  if (input.is_array() && !input.empty()) {
    if (std::all_of(input.begin(), input.end(), integer)) {
      request["ids"] = Json::array({std::move(input)});
      return {};
    }
    const bool texts =
        std::all_of(input.begin(), input.end(), [](const Json& v) { return v.is_string(); });
    const bool lists =
        std::all_of(input.begin(), input.end(), [](const Json& v) { return v.is_array(); });
    if (texts || lists) {
      request[texts ? "texts" : "ids"] = std::move(input);
      return {};
    }
  }
  return invalid(
      "input", fmt::format("met {}, want a text, a list of texts, a list of token ids or a list of "
                           "such lists",
                           ipc::describe(input)));
}

}  // namespace

Result<EmbeddingsCall> parse_embeddings(std::string body) {
  HEARTH_ASSIGN_OR_RETURN(ipc::LargeJson object, parse_body_text(std::move(body)));
  EmbeddingsCall call;
  ipc::LargeJson request(Json::object());
  request["verb"] = "embed";
  Members in(object);
  if (Json* input = in.take("input")) HEARTH_TRY(take_input(*input, request));
  for (const char* ours : {"model", "pooling", "normalize"}) in.pass(ours, request);
  if (const Json* format = in.take("encoding_format")) {
    call.answer.base64 = *format == "base64";
    if (*format != "float" && *format != "base64") {
      in.wrong("encoding_format", *format, "float or base64");
    }
  }
  if (const Json* dimensions = in.take("dimensions")) {
    if (!dimensions->is_number_unsigned() || *dimensions == 0) {
      in.wrong("dimensions", *dimensions, "an integer from 1");
    } else {
      call.answer.dimensions = dimensions->get<uint64_t>();
    }
  }
  take_ignored_of_embeddings(in);
  HEARTH_TRY(in.finish());
  call.ignored = in.ignored();
  if (!request.contains("texts") && !request.contains("ids")) {
    return invalid("input", "absent, want a text or a list");
  }
  Result<ipc::ClientRequest> decoded = ipc::request_from_json(request);
  if (!decoded) {
    Error error = decoded.take_error();
    for (const std::string_view ours : {"texts", "ids"}) {
      if (error.field != ours) continue;
      if (error.message.starts_with(ours)) error.message.replace(0, ours.size(), "input");
      error.field = "input";
      break;
    }
    return error;
  }
  call.request = std::get<ipc::EmbedRequest>(std::move(decoded).value());
  return call;
}

Result<std::string> vectors_body(const ipc::EmbedReply& reply, const VectorsAnswer& answer) {
  if (answer.ranking) return rerank_body(reply, *answer.ranking);
  if (answer.dimensions != 0 && std::cmp_not_equal(answer.dimensions, reply.dimensions)) {
    return Error::unsupported(
        fmt::format("dimensions: met {}; the vectors of model {} have {} and cannot be cut: no "
                    "model file declares that",
                    answer.dimensions, reply.model, reply.dimensions),
        "dimensions");
  }
  const int64_t tokens =
      std::accumulate(reply.prompt_tokens.begin(), reply.prompt_tokens.end(), int64_t{0});
  if (answer.ollama == OllamaVectors::kOne) {
    std::string one = R"({"embedding":)";
    append_numbers(reply.vectors.at(0), &one);
    return one + "}";
  }
  if (answer.ollama == OllamaVectors::kList) {
    std::string list = fmt::format(R"({{"model":{},"embeddings":[)", ipc::json_quote(reply.model));
    for (size_t i = 0; i < reply.vectors.size(); ++i) {
      if (i > 0) list += ',';
      append_numbers(reply.vectors[i], &list);
    }
    return list + fmt::format(R"(],"prompt_eval_count":{}}})", tokens);
  }
  std::string out = R"({"object":"list","data":[)";
  for (size_t i = 0; i < reply.vectors.size(); ++i) {
    if (i > 0) out += ',';
    out += fmt::format(R"({{"object":"embedding","index":{},"embedding":)", i);
    if (answer.base64) {
      out += '"' + reply.vectors[i] + '"';
    } else {
      append_numbers(reply.vectors[i], &out);
    }
    out += '}';
  }
  out += fmt::format(R"(],"model":{},"usage":{{"prompt_tokens":{},"total_tokens":{}}}}})",
                     ipc::json_quote(reply.model), tokens, tokens);
  return out;
}

}  // namespace hearth::http
