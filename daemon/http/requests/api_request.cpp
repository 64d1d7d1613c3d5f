#include "daemon/http/requests/api_request.h"

#include <algorithm>
#include <utility>

#include "daemon/http/requests/request_members.h"

namespace hearth::http {
struct UnreadBody {
  UnreadBody(Json&& body, size_t bytes) : json(std::move(body)), value_bytes(bytes) {}
  ipc::LargeJson json;
  size_t value_bytes;  ///< of its values
};

namespace {

Result<Call> parse_or_wait(Json& body, size_t value_bytes, const PromptRules& rules) {
  constexpr const char* kPrevious = "previous_response_id";
  const auto found = body.find(kPrevious);
  if (found == body.end() || found->is_null()) return parse_responses(body, rules, nullptr);
  if (!rules.keeps_answers) {
    return Error::unsupported("previous_response_id: answers are not kept here", kPrevious);
  }
  if (!found->is_string()) {
    return Error::invalid(
        fmt::format("previous_response_id: met {}, want a string", describe(*found)), kPrevious);
  }
  Call call{.api = Api::kResponses};
  call.previous_response_id = ipc::printable(found->get_ref<const std::string&>());
  call.unread = std::make_shared<UnreadBody>(std::move(body), value_bytes);
  return call;
}

}  // namespace

Result<Call> parse_call(Api api, std::string body, const PromptRules& rules) {
  size_t value_bytes = 0;
  HEARTH_ASSIGN_OR_RETURN(ipc::LargeJson object, parse_body_text(std::move(body), &value_bytes));
  switch (api) {
    case Api::kCompletions: return parse_completions(object);
    case Api::kChat: return parse_chat(object, rules);
    case Api::kResponses: return parse_or_wait(object, value_bytes, rules);
    case Api::kMessages: return parse_messages(object, rules);
    case Api::kOllamaGenerate:
    case Api::kOllamaChat: return parse_ollama(api, object, rules);
  }
  return Error::internal("an API without a case");
}

Result<Call> continue_call(Call call, std::string conversation, const PromptRules& rules) {
  const std::shared_ptr<UnreadBody> unread = std::exchange(call.unread, nullptr);
  ipc::JsonLimits limits = kBodyLimits;
  limits.max_value_bytes -= std::min(limits.max_value_bytes, unread->value_bytes);
  auto parsed = ipc::parse_json_object(conversation, limits);
  std::string().swap(conversation);
  if (!parsed) {
    return Error{parsed.error().code, "the kept conversation: " + parsed.error().message,
                 "previous_response_id"};
  }
  ipc::LargeJson earlier(std::move(parsed).value());
  return parse_responses(unread->json, rules, &earlier["items"]);
}

}  // namespace hearth::http
