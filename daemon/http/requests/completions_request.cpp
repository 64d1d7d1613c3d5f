// POST /v1/completions

#include <fmt/core.h>

#include "daemon/http/requests/request_members.h"
#include "ipc/schema/field_table.h"

namespace hearth::http {

Result<Call> parse_completions(Json& body) {
  Call call{.api = Api::kCompletions};
  ipc::LargeJson request(new_request());
  Members in(body);
  request["max_tokens"] = 16;
  Json* prompt = in.take("prompt");
  if (prompt == nullptr) {
    in.invalid("prompt", "absent, want a string or token ids");
  } else {
    Json* one = prompt;
    const bool wrapped = prompt->is_array() && !prompt->empty() &&
                         ((*prompt)[0].is_string() || (*prompt)[0].is_array());
    if (wrapped) {
      if (prompt->size() > 1) in.unsupported("prompt", "one prompt a request, not a list of them");
      one = &(*prompt)[0];
    }
    if (!one->is_string() && !one->is_array()) {
      in.wrong("prompt", *one, "a string or token ids");
    } else if (const size_t most = ipc::find_field(ipc::Verb::kGenerate, "prompt_ids")->max_items;
               one->is_array() && one->size() > most) {
      // Here, before the list is copied.
      in.too_large("prompt",
                   fmt::format("met a list of {}, want at most {} token ids", one->size(), most));
    } else {
      const char* const ours = one->is_string() ? "prompt" : "prompt_ids";
      request[ours] = std::move(*one);
    }
  }
  take_max_tokens(in, "max_tokens", request);
  in.pass("logprobs", request);
  take_sampling(in, request);
  take_stream(in, call);
  in.pass("raw", request);
  in.pass("parse_special", request);
  in.pass("json_schema", request);
  in.pass("prompt_logprobs", request);
  call.echo = in.flag("echo", false);
  if (call.stream && call.echo) in.unsupported("echo", "is not supported in a stream");
  if (call.stream && request.value("prompt_logprobs", Json(false)) == true) {
    in.unsupported("prompt_logprobs", "is not supported in a stream");
  }
  // Requests the prompt's tokens, and their text if the prompt was given as token ids.
  if (call.echo && (request.contains("logprobs") || request.contains("prompt_ids"))) {
    request["prompt_logprobs"] = true;
  }
  in.only("suffix", {});
  const Json* best_of = in.take("best_of");
  if (best_of != nullptr && *best_of != (request.contains("n") ? request["n"] : Json(1))) {
    in.unsupported("best_of", "only the value of n is supported");
  }
  HEARTH_TRY(in.finish());
  HEARTH_ASSIGN_OR_RETURN(call.request, decode(request, {{"prompt_ids", "prompt"}}));
  return call;
}

}  // namespace hearth::http
