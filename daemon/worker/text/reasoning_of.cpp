#include "daemon/worker/text/reasoning_of.h"

#include "ipc/schema/events.h"

namespace hearth::worker {
namespace {

using ipc::Json;

bool is_empty(const Json& message) {
  const auto content = message.find("content");
  const bool text = content != message.end() && !content->is_null() && *content != "";
  return !text && !message.contains("tool_calls");
}

}  // namespace

bool leave_out_foreign_reasoning(Json& conversation, std::string_view fingerprint) {
  const auto messages = conversation.find("messages");
  if (messages == conversation.end() || !messages->is_array()) return false;
  bool any = false;
  for (auto message = messages->begin(); message != messages->end();) {
    const auto of = message->is_object() ? message->find(ipc::kReasoningOf) : message->end();
    if (of == message->end()) {
      ++message;
      continue;
    }
    const bool foreign = *of != fingerprint;
    message->erase(of);
    if (foreign) {
      any = true;
      message->erase("reasoning_content");
    }
    message = foreign && is_empty(*message) ? messages->erase(message) : message + 1;
  }
  return any;
}

}  // namespace hearth::worker
