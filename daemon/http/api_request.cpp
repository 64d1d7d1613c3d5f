#include "daemon/http/api_request.h"

#include "daemon/http/request_members.h"
#include "ipc/wire/codec.h"

namespace hearth::http {
Result<Call> parse_call(Api api, std::string_view body) {
  HEARTH_ASSIGN_OR_RETURN(const ipc::LargeJson object, ipc::parse_json_object(body, kBodyLimits));
  switch (api) {
    case Api::kCompletions: return parse_completions(object);
    case Api::kChat: return parse_chat(object);
    case Api::kResponses: return parse_responses(object);
    case Api::kMessages: return parse_messages(object);
  }
  return Error::internal("an API without a case");
}

Result<ipc::TokenizeRequest> parse_tokenize(std::string_view body) {
  HEARTH_ASSIGN_OR_RETURN(ipc::LargeJson request, ipc::parse_json_object(body, kBodyLimits));
  if (request.contains("verb")) {
    return Error::unknown_field("verb: is not a parameter that hearth knows", "verb");
  }
  request["verb"] = "tokenize";
  HEARTH_ASSIGN_OR_RETURN(ipc::ClientRequest decoded, ipc::decode_request(ipc::dump_json(request)));
  return std::get<ipc::TokenizeRequest>(std::move(decoded));
}

}  // namespace hearth::http
