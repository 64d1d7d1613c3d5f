#pragma once
// Maps a request's method and path to an action and checks the request's header first. Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/http/guard.h"
#include "daemon/http/request_reader.h"
#include "daemon/http/requests/api_request.h"

namespace hearth::http {

enum class Action {
  kGenerate,  ///< one of the APIs
  kTokenize,
  kDetokenize,
  kTokenizerInfo,
  kModels,
  kModel,         ///< one model, by name
  kEndReasoning,  ///< of a live request, by id
  // Kept answers of the responses API, by id:
  kResponse,
  kResponseInput,
  kRemoveResponse,
  // Files and batches of OpenAI's API:
  kUploadFile,
  kFiles,
  kFile,
  kFileContent,
  kRemoveFile,
  kCreateBatch,
  kBatches,
  kBatch,
  kCancelBatch,
  kHealth,
  kReady,
  kMetrics,
  kEmbeddings,
  kRerank,
  kCountTokens,  ///< of Anthropic's messages API
  // Of Ollama's API:
  kOllamaVersion,
  kOllamaTags,
  kOllamaPs,
  kOllamaShow,
  kOllamaEmbed,
  kOllamaEmbeddings,  ///< the older form of the last one
  kGreeting,          ///< by which its clients see that a server runs
  kPreflight,         ///< a browser's preflight for a cross-origin request
};

struct Route {
  Action action = Action::kHealth;
  Api api = Api::kCompletions;  ///< also the format of errors
  std::string name;             ///< the model, request, answer, file or batch that the path names
  std::string query;  ///< after the question mark, where an address has a list's parameters
  std::optional<uint32_t> owner{};  ///< of the key that the request shows
};

/// A status other than 200, and the reason.
struct Refusal {
  int status = 0;
  std::string message;
  std::string allow{};  ///< 405: the allowed methods
};

/// The rules of a listener, applied to all its requests.
struct Rules {
  HostRules hosts;
  std::vector<std::string> origins;
  const Keys* keys = nullptr;  ///< null: no key is required
  bool other_user = false;     ///< the connection belongs to a user that is not admitted
  bool own = false;            ///< the connection is the daemon's own
};

/// The API whose format is used for errors about this target.
Api api_of(std::string_view target);
/// Finds the route, or returns the refusal. Uses only the header.
std::optional<Refusal> route(const Rules& rules, const HttpRequest& head, Route* out);

/// "Not Found"
std::string_view reason_phrase(int status);

}  // namespace hearth::http
