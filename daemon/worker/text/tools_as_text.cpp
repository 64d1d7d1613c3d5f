#include "daemon/worker/text/tools_as_text.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

namespace hearth::worker {
namespace {

using ipc::Json;

constexpr std::string_view kKeepSeconds = "cache_keep_s";
constexpr std::string_view kKeepBytes = "cache_keep_bytes";

std::string text_of(const Json& message, std::string_view name) {
  const auto found = message.find(name);
  return found != message.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Error wrong(const std::string& what) {
  return Error::invalid("messages: " + what + ", where functions are described as text",
                        "messages");
}

/// The content of a message: a text, or the texts of a list of parts.
Result<std::string> content_of(const Json& message) {
  const auto content = message.find("content");
  if (content == message.end() || content->is_null()) return std::string();
  if (content->is_string()) return content->get<std::string>();
  std::string out;
  for (const Json& part : content->is_array() ? *content : Json::array({nullptr})) {
    if (text_of(part, "type") != "text") return wrong("content: want a text or parts with texts");
    out += text_of(part, "text");
  }
  return out;
}

std::string described(const Json& tools) {
  std::string out =
      "You can call functions to help the user. These functions exist, one JSON object a line:\n"
      "<tools>\n";
  for (Json tool : tools) {
    tool.erase(std::string(kKeepSeconds));
    out += ipc::dump_json(tool) + "\n";
  }
  return out +
         "</tools>\n"
         "To call a function, write a JSON object with its name and its arguments between these "
         "marks, once for each call:\n"
         "<tool_call>\n{\"name\": \"the function's name\", \"arguments\": {}}\n</tool_call>\n"
         "Results follow in the next message, between <tool_response> and </tool_response>.";
}

Result<std::string> called(const Json& call) {
  const auto inner = call.find("function");
  const Json& function = inner == call.end() ? call : *inner;
  if (!function.is_object()) return wrong("tool_calls: want objects with a function");
  const auto arguments = function.find("arguments");
  Json out = {{"name", text_of(function, "name")},
              {"arguments", arguments == function.end() ? Json::object() : *arguments}};
  return "<tool_call>\n" + ipc::dump_json(out) + "\n</tool_call>";
}

/// The marks for the cache of a message whose text another one continues.
void join_marks(Json& to, const Json& from) {
  const auto seconds = from.find(kKeepSeconds);
  if (seconds == from.end()) return;
  Json& known = to[std::string(kKeepSeconds)];
  if (!known.is_number() || !seconds->is_number() || known < *seconds) known = *seconds;
}

}  // namespace

Result<Json> with_tools_as_text(Json messages, const Json& tools) {
  Json out = Json::array();
  bool results = false;  // the last message consists of them
  for (Json& message : messages) {
    const std::string role = text_of(message, "role");
    if (role != "tool") {
      results = false;
      const auto calls = message.find("tool_calls");
      if (role == "assistant" && calls != message.end() && calls->is_array()) {
        HEARTH_ASSIGN_OR_RETURN(std::string text, content_of(message));
        for (const Json& call : *calls) {
          HEARTH_ASSIGN_OR_RETURN(const std::string one, called(call));
          text += (text.empty() ? "" : "\n") + one;
        }
        message["content"] = std::move(text);
        message.erase("tool_calls");
      }
      out.push_back(std::move(message));
      continue;
    }
    HEARTH_ASSIGN_OR_RETURN(std::string text, content_of(message));
    text = "<tool_response>\n" + text + "\n</tool_response>";
    if (results) {
      std::string& before = out.back()["content"].get_ref<std::string&>();
      before += "\n" + text;
    } else {
      out.push_back({{"role", "user"}, {"content", text}});
    }
    join_marks(out.back(), message);
    results = true;
  }
  const bool has_system = !out.empty() && text_of(out.front(), "role") == "system";
  if (!has_system) out.insert(out.begin(), Json{{"role", "system"}, {"content", ""}});
  Json& system = out.front();
  HEARTH_ASSIGN_OR_RETURN(const std::string before, content_of(system));
  system["content"] = before + (before.empty() ? "" : "\n\n") + described(tools);
  for (const Json& tool : tools) {
    if (!tool.contains(kKeepSeconds)) continue;
    system.erase(std::string(kKeepBytes));
    join_marks(system, tool);
  }
  return out;
}

}  // namespace hearth::worker
