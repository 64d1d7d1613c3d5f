// POST /v1/completions

#include <fmt/core.h>

#include "daemon/http/requests/field_lists.h"
#include "ipc/schema/field_table.h"

namespace hearth::http {
namespace {

/// Moves one prompt, a text or token ids, to `request`.
void take_prompt(Members& in, Json& one, Json& request) {
  if (!one.is_string() && !one.is_array()) {
    return in.wrong("prompt", one, "a string, token ids, or a list of either");
  }
  // Here, before the list is copied.
  const size_t most = ipc::find_field(ipc::Verb::kGenerate, "prompt_ids")->max_items;
  if (one.is_array() && one.size() > most) {
    return in.too_large(
        "prompt", fmt::format("met a list of {}, want at most {} token ids", one.size(), most));
  }
  const char* const ours = one.is_string() ? "prompt" : "prompt_ids";
  request[ours] = std::move(one);
}

void take_prompts(Members& in, Json& request, Call& call) {
  constexpr size_t kMostPrompts = 1024;
  Json* prompt = in.take("prompt");
  if (prompt == nullptr) return in.invalid("prompt", "absent, want a string or token ids");
  const bool several = prompt->is_array() && !prompt->empty() &&
                       ((*prompt)[0].is_string() || (*prompt)[0].is_array());
  if (!several) return take_prompt(in, *prompt, request);
  if (prompt->size() > kMostPrompts) {
    return in.too_large(
        "prompt", fmt::format("met {} prompts, want at most {}", prompt->size(), kMostPrompts));
  }
  take_prompt(in, (*prompt)[0], request);
  for (size_t i = 1; i < prompt->size() && !in.failed(); ++i) {
    ipc::LargeJson other(new_request());
    take_prompt(in, (*prompt)[i], other);
    if (in.failed()) return;
    Result<ipc::GenerateRequest> read = decode(other, {{"prompt_ids", "prompt"}});
    if (!read) return in.invalid("prompt", fmt::format("[{}]: {}", i, read.error().message));
    call.further.push_back({std::move(read->prompt), std::move(read->prompt_ids)});
  }
}

}  // namespace

Result<Call> parse_completions(Json& body) {
  Call call{.api = Api::kCompletions};
  ipc::LargeJson request(new_request());
  HEARTH_TRY(rename_foreign(body, set_of(call.api)));
  Members in(body);
  request["max_tokens"] = 16;
  take_prompts(in, request, call);
  call.echo = in.flag("echo", false);
  // Only the prompt's log probabilities are wanted.
  const Json* most = in.take("max_tokens");
  call.scores_prompt = call.echo && most != nullptr && *most == 0;
  if (call.scores_prompt) {
    request["max_tokens"] = 1;
  } else {
    take_max_tokens(in, "max_tokens", request);
  }
  in.pass("logprobs", request);
  take_sampling(in, request);
  take_stream(in, call);
  in.pass("raw", request);
  in.pass("suffix", request);
  in.pass("prediction", request);
  in.pass("parse_special", request);
  in.pass("prompt_logprobs", request);
  if (call.stream && call.echo) in.unsupported("echo", "is not supported in a stream");
  if (call.stream && request.value("prompt_logprobs", Json(false)) == true) {
    in.unsupported("prompt_logprobs", "is not supported in a stream");
  }
  // Requests the prompt's tokens, and their text if the prompt was given as token ids.
  const bool has_ids =
      request.contains("prompt_ids") ||
      std::ranges::any_of(call.further, [](const auto& p) { return p.text.empty(); });
  if (call.echo && (request.contains("logprobs") || has_ids)) {
    request["prompt_logprobs"] = true;
  }
  take_ignored(in, set_of(call.api));
  const Json* best_of = in.take("best_of");
  if (best_of != nullptr && *best_of != (request.contains("n") ? request["n"] : Json(1))) {
    in.unsupported("best_of", "only the value of n is supported");
  }
  HEARTH_TRY(in.finish());
  call.ignored = in.ignored();
  HEARTH_ASSIGN_OR_RETURN(call.request, decode(request, {{"prompt_ids", "prompt"}}));
  return call;
}

}  // namespace hearth::http
