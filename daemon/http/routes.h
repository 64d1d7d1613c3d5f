#pragma once
// What a request asks for, by its method and path; and what it must be like before it is answered.
// Pure.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/http/api_request.h"
#include "daemon/http/guard.h"
#include "daemon/http/request_reader.h"

namespace hearth::http {

enum class Action {
  kGenerate,  ///< one of the APIs
  kTokenize,
  kModels,
  kModel,  ///< one of them, by name
  kHealth,
  kMetrics,
  kEmbeddings,
  kCountTokens,  ///< of Anthropic's messages
  kPreflight,    ///< a browser asks whether it may
};

struct Route {
  Action action = Action::kHealth;
  Api api = Api::kCompletions;  ///< whose shape errors have, too
  std::string model;            ///< kModel
};

/// A status other than 200, and why.
struct Refusal {
  int status = 0;
  std::string message;
  std::string allow{};  ///< 405: the methods there are
};

/// What all requests of a listener are measured by.
struct Rules {
  HostRules hosts;
  std::vector<std::string> origins;
  const Keys* keys = nullptr;  ///< null: no key is asked for
  bool other_user = false;     ///< the connection is not of a user who is admitted
};

/// Whose shape an error about this target has.
Api api_of(std::string_view target);
/// Where the request goes, or why nowhere. Looks at the head alone.
std::optional<Refusal> route(const Rules& rules, const HttpRequest& head, Route* out);

/// "Not Found"
std::string_view reason_phrase(int status);

}  // namespace hearth::http
