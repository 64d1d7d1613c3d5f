#pragma once
// Requests of the OpenAI and Anthropic APIs as requests of ours. Pure: text in, struct or error
// out. What is not supported is refused by its name; nothing that would change the answer is
// ignored. Error::field is the API's own name of the parameter.

#include <string>
#include <string_view>

#include "ipc/schema/protocol.h"
#include "ipc/schema/requests.h"
#include "kernels/base/result.h"

namespace hearth::http {

enum class Api {
  kCompletions,  ///< POST /v1/completions
  kChat,         ///< POST /v1/chat/completions
  kResponses,    ///< POST /v1/responses
  kMessages,     ///< POST /v1/messages (Anthropic)
};

struct Call {
  Api api = Api::kCompletions;
  ipc::GenerateRequest request{};
  bool stream = false;
  bool include_usage = false;  ///< of a stream of kCompletions and kChat
  bool echo = false;           ///< kCompletions, whole: the prompt in front of each text
};

/// kProtocol where the body is no JSON object; kInvalidArgument, kUnsupported, kUnknownField and
/// kTooLarge name the parameter.
Result<Call> parse_call(Api api, std::string_view body);

/// POST /tokenize: `model`, `text`, `raw`, `parse_special`, as the verb of the socket.
Result<ipc::TokenizeRequest> parse_tokenize(std::string_view body);

}  // namespace hearth::http
