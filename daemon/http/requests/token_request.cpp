#include "daemon/http/requests/token_request.h"

#include <fmt/format.h>

#include <utility>

#include "daemon/http/requests/request_members.h"
#include "ipc/wire/codec.h"
#include "ipc/wire/json.h"

namespace hearth::http {
namespace {

Result<TokenCall> read(Json& request, TokenAnswer answer) {
  request["verb"] = "tokenize";
  HEARTH_ASSIGN_OR_RETURN(ipc::ClientRequest decoded, ipc::request_from_json(request));
  return TokenCall{.request = std::get<ipc::TokenizeRequest>(std::move(decoded)), .answer = answer};
}

/// The text that other servers' clients call by one of these names.
Result<TokenCall> read_prompt(Json& object, const char* name) {
  Members in(object);
  ipc::LargeJson request(Json::object());
  in.pass("model", request);
  in.pass(name, request, "text");
  in.pass("parse_special", request);
  const bool special = in.flag("add_special_tokens", std::string_view(name) == "prompt");
  request["raw"] = !in.flag("add_special", special);
  in.only("return_token_strs", {Json(false)});
  in.only("with_pieces", {Json(false)});
  HEARTH_TRY(in.finish());
  return read(request, TokenAnswer::kIds);
}

}  // namespace

Result<TokenCall> parse_tokenize(std::string body) {
  HEARTH_ASSIGN_OR_RETURN(ipc::LargeJson object, parse_body_text(std::move(body)));
  for (const char* name : {"prompt", "content"}) {
    const auto found = object.find(name);
    if (found != object.end() && !found->is_null()) return read_prompt(object, name);
  }
  ipc::LargeJson request(Json::object());
  for (auto& [key, value] : object.get_ref<Json::object_t&>()) {
    if (!value.is_null()) request[key] = std::move(value);
  }
  if (request.contains("verb")) {
    return Error::unknown_field("verb: is not a parameter that hearth knows", "verb");
  }
  return read(request, TokenAnswer::kOurs);
}

Result<TokenCall> parse_detokenize(std::string body) {
  HEARTH_ASSIGN_OR_RETURN(ipc::LargeJson object, parse_body_text(std::move(body)));
  Members in(object);
  ipc::LargeJson request(Json::object());
  in.pass("model", request);
  in.pass("tokens", request, "ids");
  if (!request.contains("ids")) in.invalid("tokens", "absent, want a list of token ids");
  HEARTH_TRY(in.finish());
  if (request["ids"] == Json::array()) {
    request.erase("ids");
    request["text"] = "";
    request["raw"] = true;
  }
  return read(request, TokenAnswer::kText);
}

TokenCall tokenizer_info() {
  TokenCall out{.answer = TokenAnswer::kSpecial};
  out.request.raw = true;
  return out;
}

Result<TokenCall> parse_count_tokens(std::string body, const PromptRules& rules) {
  HEARTH_ASSIGN_OR_RETURN(ipc::LargeJson object, parse_body_text(std::move(body)));
  TokenCall out{.answer = TokenAnswer::kCount};
  for (const std::string_view key :
       {"max_tokens", "stream", "temperature", "top_p", "top_k", "stop_sequences"}) {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) continue;
    out.ignored.push_back(key);
    object.erase(found);
  }
  // Parse it as a full request, so that the prompt or the refusal is the same.
  object["max_tokens"] = 1;
  HEARTH_ASSIGN_OR_RETURN(Call call, parse_messages(object, rules));
  out.ignored.insert(out.ignored.end(), call.ignored.begin(), call.ignored.end());
  out.volatile_lines = call.volatile_lines;
  out.request.model = std::move(call.request.model);
  out.request.messages = std::move(call.request.messages);
  if (call.request.tool_choice != "none") out.request.tools = std::move(call.request.tools);
  out.request.tool_form = std::move(call.request.tool_form);
  out.request.template_kwargs = std::move(call.request.template_kwargs);
  out.request.reasoning = std::move(call.request.reasoning);
  return out;
}

std::string tokens_body(const ipc::TokenizeReply& reply, TokenAnswer answer) {
  switch (answer) {
    case TokenAnswer::kOurs:
      return ipc::dump_json({{"model", reply.model},
                             {"count", reply.ids.size()},
                             {"ids", reply.ids},
                             {"entries", reply.entries}});
    case TokenAnswer::kIds:
      return ipc::dump_json({{"count", reply.ids.size()}, {"tokens", reply.ids}});
    case TokenAnswer::kText:
      return ipc::dump_json({{"prompt", reply.text}, {"content", reply.text}});
    case TokenAnswer::kCount: return fmt::format(R"({{"input_tokens":{}}})", reply.ids.size());
    case TokenAnswer::kSpecial: break;
  }
  const auto known = [](const std::string& entry) { return entry.empty() ? Json() : Json(entry); };
  return ipc::dump_json(
      {{"model", reply.model}, {"bos_token", known(reply.bos)}, {"eos_token", known(reply.eos)}});
}

}  // namespace hearth::http
