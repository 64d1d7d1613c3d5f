#include "daemon/http/requests/api_request.h"

#include "daemon/http/requests/request_members.h"

namespace hearth::http {
Result<Call> parse_call(Api api, std::string body, const PromptRules& rules) {
  HEARTH_ASSIGN_OR_RETURN(ipc::LargeJson object, parse_body_text(std::move(body)));
  switch (api) {
    case Api::kCompletions: return parse_completions(object);
    case Api::kChat: return parse_chat(object, rules);
    case Api::kResponses: return parse_responses(object, rules);
    case Api::kMessages: return parse_messages(object, rules);
    case Api::kOllamaGenerate:
    case Api::kOllamaChat: return parse_ollama(api, object, rules);
  }
  return Error::internal("an API without a case");
}

Result<ipc::TokenizeRequest> parse_tokenize(std::string body) {
  HEARTH_ASSIGN_OR_RETURN(ipc::LargeJson object, parse_body_text(std::move(body)));
  ipc::LargeJson request(Json::object());
  for (auto& [key, value] : object.get_ref<Json::object_t&>()) {
    if (!value.is_null()) request[key] = std::move(value);
  }
  if (request.contains("verb")) {
    return Error::unknown_field("verb: is not a parameter that hearth knows", "verb");
  }
  request["verb"] = "tokenize";
  HEARTH_ASSIGN_OR_RETURN(ipc::ClientRequest decoded, ipc::request_from_json(request));
  return std::get<ipc::TokenizeRequest>(std::move(decoded));
}

}  // namespace hearth::http
