// Any bytes as the HTTP front door meets them: as a connection's, however cut; as the body of each
// API; as a file of keys, an address, a text. What is accepted is answered in JSON that reads back.
//
// Input: a byte that chooses, then the bytes.

#include <nlohmann/json.hpp>
#include <string>

#include "daemon/http/answers/api_answer.h"
#include "daemon/http/batch.h"
#include "daemon/http/guard.h"
#include "daemon/http/request_reader.h"
#include "daemon/http/requests/api_embeddings.h"
#include "daemon/http/requests/api_request.h"
#include "daemon/http/requests/token_request.h"
#include "daemon/http/routes.h"
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

// The same requests, whatever the pieces.
void as_connection(std::string_view bytes, size_t step) {
  const ReaderLimits limits{.header_bytes = 256, .body_bytes = 64};
  const Rules rules{.hosts = HostRules::of_unix_socket({}), .origins = {"http://a"}};
  const auto read = [&](size_t size) {
    RequestReader reader(limits);
    std::string seen;
    for (size_t at = 0; at < bytes.size(); at += size) {
      reader.push(bytes.substr(at, size));
      while (reader.state() == RequestReader::State::kDone) {
        const HttpRequest request = reader.take();
        HEARTH_CHECK(request.body.size() <= limits.body_bytes);
        Route found;
        const auto refusal = route(rules, request, &found);
        seen += request.method + ' ' + request.target + ' ' + request.body + ' ' +
                std::to_string(refusal ? refusal->status : 200) + '\n';
      }
    }
    return seen;
  };
  HEARTH_CHECK(read(step) == read(bytes.size() + 1));
}

void as_body(Api api, std::string_view body) {
  const Result<Call> call = parse_call(api, std::string(body));
  if (!call) return check_error(api, call.error());
  // A request that the socket's protocol takes.
  HEARTH_CHECK(ipc::decode_request(ipc::encode_request(call->request)).ok());
  const auto writer = make_answer_writer(*call, "1-2", 1);
  std::string out;
  writer->started({"m", 3, 1, 0.0}, &out);
  writer->delta(0, "a\"\n", {}, &out);
  writer->sample_done({0, "stop", 1, ""}, &out);
  ipc::DoneEvent done;
  done.finish_reasons = {"stop"};
  writer->done(done, &out);
  HEARTH_CHECK(call->stream || nlohmann::json::accept(out));
}

/// Vectors for Ollama's clients.
void as_ollama_embed(bool legacy, std::string_view body) {
  const auto call = parse_ollama_embed(legacy, std::string(body));
  if (!call) return check_error(Api::kOllamaChat, call.error());
  HEARTH_CHECK(ipc::decode_request(ipc::encode_request(call->request)).ok());
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
  const int which = input.number(0, 7);
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
      for (const auto parse : {parse_tokenize, parse_detokenize}) {
        const auto request = parse(body);
        if (!request) check_error(Api::kCompletions, request.error());
      }
      break;
    }
    case 6: {
      const auto keys = Keys::parse(input.rest(), "keys");
      if (keys) HEARTH_CHECK(keys->check("", Scope::kRead) == Keys::Verdict::kUnknown);
      as_batch(input.rest());
      break;
    }
    default: {
      as_body(Api::kOllamaGenerate, input.rest());
      as_body(Api::kOllamaChat, input.rest());
      for (const bool legacy : {false, true}) as_ollama_embed(legacy, input.rest());
      std::string quoted;
      if (ipc::is_valid_utf8(input.rest())) {
        ipc::append_quoted(input.rest(), &quoted);
        HEARTH_CHECK(nlohmann::json::parse(quoted).get<std::string>() == input.rest());
      }
      if (const auto endpoint = parse_endpoint(input.rest())) {
        HEARTH_CHECK(endpoint->address == "::1" || endpoint->address.starts_with("127."));
      }
    }
  }
  return 0;
}
