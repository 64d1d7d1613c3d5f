// Any bytes as the HTTP front door meets them: as a connection's, however cut; as the body of each
// API, also one that continues a kept answer; as a file of keys, an address, its parameters, a
// text. What is accepted is answered in JSON that reads back.
//
// Input: a byte that chooses, then the bytes.

#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "daemon/http/answers/api_answer.h"
#include "daemon/http/batch.h"
#include "daemon/http/guard.h"
#include "daemon/http/request_reader.h"
#include "daemon/http/requests/api_embeddings.h"
#include "daemon/http/requests/api_request.h"
#include "daemon/http/requests/api_rerank.h"
#include "daemon/http/requests/token_request.h"
#include "daemon/http/requests/volatile_lines.h"
#include "daemon/http/routes.h"
#include "ipc/text/base64.h"
#include "ipc/text/utf8.h"
#include "ipc/wire/codec.h"
#include "ipc/wire/json_text.h"
#include "kernels/base/check.h"
#include "tests/fuzz/input.h"

namespace {

using namespace hearth;
using namespace hearth::http;

void check_error(Api api, const Error& error) {
  HEARTH_CHECK(!error.message.empty() && ipc::is_valid_utf8(error.message));
  HEARTH_CHECK(nlohmann::json::accept(error_body(api, status_of(api, error.code), error)));
}

/// What becomes of a head under these rules, as text.
std::string outcome(const Rules& rules, const HttpRequest& head) {
  Route found;
  const auto refusal = route(rules, head, &found);
  if (!refusal) {
    HEARTH_CHECK(found.name.size() + found.query.size() <= head.target.size());
    return "200 " + found.name + ' ' + found.query;
  }
  HEARTH_CHECK(!reason_phrase(refusal->status).empty() && !refusal->message.empty());
  HEARTH_CHECK(refusal->allow.empty() || refusal->status == 405);
  return std::to_string(refusal->status);
}

const Keys& keys() {
  static const Keys all =
      Keys::parse("me all 0123456789abcdef\nyou read,metrics fedcba9876543210\n", "keys").value();
  return all;
}

// The same requests, whatever the pieces.
void as_connection(std::string_view bytes, size_t step) {
  const ReaderLimits limits{.header_bytes = 512, .body_bytes = 64};
  const Rules open{.hosts = HostRules::of_unix_socket({}), .origins = {"http://a"}};
  Rules locked{.hosts = HostRules::of_tcp({.address = "127.0.0.1", .port = 80}, {"H.example"}),
               .origins = {}};
  locked.keys = &keys();
  Rules closed{.hosts = HostRules::of_unix_socket({"a"}), .origins = {}};
  closed.other_user = true;
  const std::array<Rules, 3> all = {open, locked, closed};
  const auto read = [&](size_t size) {
    RequestReader reader(limits);
    std::string seen;
    for (size_t at = 0; at < bytes.size(); at += size) {
      reader.push(bytes.substr(at, size));
      while (reader.state() == RequestReader::State::kDone) {
        const HttpRequest request = reader.take();
        HEARTH_CHECK(request.body.size() <= limits.body_bytes);
        seen += request.method + ' ' + request.target + ' ' + request.body + '\n';
        for (const Rules& rules : all) seen += outcome(rules, request) + '\n';
      }
    }
    if (reader.state() == RequestReader::State::kFailed) {
      HEARTH_CHECK(reader.status() >= 400 && !reader.problem().empty());
    }
    return seen;
  };
  const std::string cut = read(step), whole = read(bytes.size() + 1);
  HEARTH_CHECK(cut == whole, "met {}, want {}", cut, whole);
}

PromptRules prompt_rules(bool keeps_answers) {
  return {.volatile_lines = {"Today is *", "*noon*"}, .keeps_answers = keeps_answers};
}

void check_call(const Call& call) {
  // A request that the socket's protocol takes.
  HEARTH_CHECK(ipc::decode_request(ipc::encode_request(call.request)).ok());
  const auto writer = make_answer_writer(call, "1-2", 1);
  std::string out;
  writer->started({"m", 3, 1, 0.0}, &out);
  writer->reasoning(0, "r", &out);
  writer->delta(0, "a\"\n", {}, &out);
  if (!call.request.tools.empty()) {
    writer->call(0, {.id = "c", .name = "f"}, &out);
    writer->arguments(0, R"({"input":"a"})", &out);
  }
  writer->sample_done({0, "stop", 1, ""}, &out);
  ipc::DoneEvent done;
  done.finish_reasons = {"stop"};
  writer->done(done, &out);
  HEARTH_CHECK(call.stream || nlohmann::json::accept(out));
}

void as_body(Api api, std::string_view body) {
  const Result<Call> call = parse_call(api, std::string(body), prompt_rules(false));
  if (!call) return check_error(api, call.error());
  check_call(*call);
}

/// A request where answers are kept, which may continue one; the conversation before it follows the
/// byte 0x1E.
void as_continued(std::string_view bytes) {
  const size_t gap = std::min(bytes.find('\x1E'), bytes.size());
  Result<Call> call =
      parse_call(Api::kResponses, std::string(bytes.substr(0, gap)), prompt_rules(true));
  if (!call) return check_error(Api::kResponses, call.error());
  if (call->unread == nullptr) return check_call(*call);
  HEARTH_CHECK(ipc::is_valid_utf8(call->previous_response_id));
  const std::string_view conversation = bytes.substr(std::min(gap + 1, bytes.size()));
  call = continue_call(*std::move(call), std::string(conversation), prompt_rules(true));
  if (!call) return check_error(Api::kResponses, call.error());
  check_call(*call);
}

/// Vectors or a ranking, or an error about one.
void check_embeddings(Api api, const Result<EmbeddingsCall>& call) {
  if (!call) return check_error(api, call.error());
  HEARTH_CHECK(ipc::decode_request(ipc::encode_request(call->request)).ok());
  ipc::EmbedReply reply;
  reply.model = "m\"";
  reply.dimensions = 2;
  for (size_t i = 0; i < call->request.texts.size() + call->request.ids.size(); ++i) {
    reply.prompt_tokens.push_back(3);
    reply.vectors.push_back(ipc::base64_of_floats({{0.5f, i % 2 == 0 ? -1.0f : 1e-9f}}));
  }
  const Result<std::string> body = vectors_body(reply, call->answer);
  if (!body) return check_error(api, body.error());
  HEARTH_CHECK(nlohmann::json::accept(*body));
}

void check_tokens(Api api, const Result<TokenCall>& call) {
  if (!call) return check_error(api, call.error());
  HEARTH_CHECK(ipc::decode_request(ipc::encode_request(call->request)).ok());
  const ipc::TokenizeReply reply{
      .model = "m", .ids = {1, 2}, .entries = {"a", "\""}, .text = "a\"", .bos = "<s>"};
  HEARTH_CHECK(nlohmann::json::accept(tokens_body(reply, call->answer)));
}

/// The parameters of a list's address.
void as_query(std::string_view query) {
  std::string purpose;
  for (const auto& page : {parse_item_page(query, true), parse_item_page(query, false),
                           parse_list_page(query, &purpose), parse_list_page(query, nullptr)}) {
    if (!page) {
      check_error(Api::kResponses, page.error());
    } else {
      HEARTH_CHECK(page->limit >= 1 && page->after.size() <= query.size());
    }
  }
  const size_t equals = std::min(query.find('='), query.size());
  const std::string_view pattern = query.substr(0, equals);
  const std::string_view line = query.substr(std::min(equals + 1, query.size()));
  if (matches_line(pattern, line) && pattern.find('*') == std::string_view::npos) {
    HEARTH_CHECK(pattern == line);
  }
  is_line_pattern(pattern);
}

/// A form with a file, a batch, and a line of one.
void as_batch(std::string_view bytes) {
  const auto upload = parse_upload(bytes, "b");
  if (upload) {
    HEARTH_CHECK(bytes.find(upload->content) != std::string_view::npos);
    StoredFile file;
    file.name = upload->name;
    HEARTH_CHECK(nlohmann::json::accept(file_body(file)));
  } else {
    check_error(Api::kCompletions, upload.error());
  }
  const std::string boundary = form_boundary(bytes);
  HEARTH_CHECK(boundary.size() <= 70);
  if (const auto batch = parse_create_batch(std::string(bytes)); !batch) {
    check_error(Api::kCompletions, batch.error());
  } else {
    HEARTH_CHECK(nlohmann::json::accept(batch->metadata));
  }
  const auto line = parse_batch_line(bytes, "/v1/completions");
  if (line) HEARTH_CHECK(nlohmann::json::accept(line->body) && !line->custom_id.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hearth::fuzz::Input input(data, size);
  // A new meaning takes the next number, so that inputs found before keep theirs.
  const int which = input.number(0, 31);
  switch (which) {
    case 0: {
      const auto step = static_cast<size_t>(input.number(1, 64));
      as_connection(input.rest(), step);
      break;
    }
    case 1: as_body(Api::kCompletions, input.rest()); break;
    case 2: as_body(Api::kChat, input.rest()); break;
    case 3: as_body(Api::kResponses, input.rest()); break;
    case 4: as_body(Api::kMessages, input.rest()); break;
    case 5: {
      const std::string body(input.rest());
      check_tokens(Api::kCompletions, parse_tokenize(body));
      check_tokens(Api::kCompletions, parse_detokenize(body));
      break;
    }
    case 6: {
      const auto keys = Keys::parse(input.rest(), "keys");
      if (keys) HEARTH_CHECK(keys->check("", Scope::kRead).verdict == Keys::Verdict::kUnknown);
      as_batch(input.rest());
      break;
    }
    case 7: {
      as_body(Api::kOllamaGenerate, input.rest());
      as_body(Api::kOllamaChat, input.rest());
      const std::string body(input.rest());
      for (const bool legacy : {false, true}) {
        check_embeddings(Api::kOllamaChat, parse_ollama_embed(legacy, body));
      }
      if (const auto name = parse_ollama_name(body); !name) {
        check_error(Api::kOllamaChat, name.error());
      }
      std::string quoted;
      if (ipc::is_valid_utf8(input.rest())) {
        ipc::append_quoted(input.rest(), &quoted);
        HEARTH_CHECK(nlohmann::json::parse(quoted).get<std::string>() == input.rest());
      }
      if (const auto endpoint = parse_endpoint(input.rest())) {
        const bool here = endpoint->address == "::1" || endpoint->address.starts_with("127.");
        HEARTH_CHECK(endpoint->loopback == here);
        HEARTH_CHECK(!canonical_address(endpoint->address).empty());
      }
      break;
    }
    case 8: check_embeddings(Api::kCompletions, parse_embeddings(std::string(input.rest()))); break;
    case 9: check_embeddings(Api::kCompletions, parse_rerank(std::string(input.rest()))); break;
    case 10:
      check_tokens(Api::kMessages,
                   parse_count_tokens(std::string(input.rest()), prompt_rules(false)));
      break;
    case 11: as_continued(input.rest()); break;
    case 12: as_query(input.rest()); break;
    default: break;  // free numbers
  }
  return 0;
}
