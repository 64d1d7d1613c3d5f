// POST /v1/messages, Anthropic's

#include "daemon/http/request_members.h"

namespace hearth::http {

Result<Call> parse_messages(const Json& body) {
  Call call{.api = Api::kMessages};
  Json request = new_request();
  Members in(body);
  Json messages = Json::array();
  if (const Json* system = in.take("system")) {
    Kept kept;
    if (const auto text = text_of(*system, {"text"}, "system", in, &kept)) {
      messages.push_back({{"role", "system"}, {"content", *text}});
      kept.write_to(messages.back());
    }
  }
  const Json* list = in.take("messages");
  if (list == nullptr || !list->is_array() || list->empty()) {
    in.wrong("messages", list == nullptr ? Json() : *list, "a list of messages");
  } else {
    for (size_t i = 0; i < list->size() && !in.failed(); ++i) {
      const std::string path = fmt::format("messages[{}]", i);
      if (!(*list)[i].is_object()) {
        in.wrong(path, (*list)[i], "an object");
        break;
      }
      Members message((*list)[i], path + ".");
      const std::string role = message.text("role").value_or("");
      if (role != "user" && role != "assistant") {
        message.fail("role", ErrorCode::kInvalidArgument, "want user or assistant");
      }
      Kept kept;
      std::optional<std::string> text;
      if (const Json* content = message.take("content")) {
        text = text_of(*content, {"text"}, path + ".content", in, &kept);
      } else {
        message.fail("content", ErrorCode::kInvalidArgument, "absent, want a string");
      }
      kept.add(take_cache_control(message), 0);
      message.check_unknown();
      in.take_error_of(message);
      messages.push_back({{"role", role}, {"content", text.value_or("")}});
      kept.write_to(messages.back());
      if (i + 1 == list->size() && role == "assistant") {
        in.unsupported("messages",
                       "the last is the assistant's; going on from it is not "
                       "supported");
      }
    }
  }
  request["messages"] = std::move(messages);
  in.copy("model", request);
  take_max_tokens(in, "max_tokens", request);
  if (!request.contains("max_tokens")) {
    in.fail("max_tokens", ErrorCode::kInvalidArgument, "absent, want an integer");
  }
  in.copy("temperature", request);
  in.copy("top_p", request);
  in.copy("top_k", request);
  take_stop(in, "stop_sequences", request);
  call.stream = in.flag("stream", false);
  take_tools(in);
  if (const int64_t keep_s = take_cache_control(in); keep_s > 0) request["cache_keep_s"] = keep_s;
  in.take("metadata");  // whom the caller acts for
  in.only("service_tier", {"auto", "standard_only"});
  in.only("thinking", {Json::parse(R"({"type":"disabled"})")});
  HEARTH_TRY(in.finish());
  HEARTH_ASSIGN_OR_RETURN(call.request, decode(request, {{"stop", "stop_sequences"}}));
  return call;
}

}  // namespace hearth::http
