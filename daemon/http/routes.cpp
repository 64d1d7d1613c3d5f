#include "daemon/http/routes.h"

#include <algorithm>
#include <array>

#include "daemon/http/batch.h"
#include "ipc/wire/json.h"
#include "kernels/base/ascii.h"

namespace hearth::http {
namespace {

struct Known {
  std::string_view method;
  std::string_view path;
  Action action;
  Api api;
  Scope scope;
};
constexpr std::array kRoutes = {
    Known{"POST", "/v1/messages/count_tokens", Action::kCountTokens, Api::kMessages,
          Scope::kGenerate},
    Known{"GET", "/health", Action::kHealth, Api::kCompletions, Scope::kRead},
    Known{"GET", "/ready", Action::kReady, Api::kCompletions, Scope::kRead},
    Known{"GET", "/metrics", Action::kMetrics, Api::kCompletions, Scope::kMetrics},
    Known{"GET", "/v1/models", Action::kModels, Api::kCompletions, Scope::kRead},
    Known{"POST", "/tokenize", Action::kTokenize, Api::kCompletions, Scope::kGenerate},
    Known{"POST", "/detokenize", Action::kDetokenize, Api::kCompletions, Scope::kGenerate},
    Known{"GET", "/tokenizer_info", Action::kTokenizerInfo, Api::kCompletions, Scope::kGenerate},
    Known{"POST", "/v1/completions", Action::kGenerate, Api::kCompletions, Scope::kGenerate},
    Known{"POST", "/v1/chat/completions", Action::kGenerate, Api::kChat, Scope::kGenerate},
    Known{"POST", "/v1/responses", Action::kGenerate, Api::kResponses, Scope::kGenerate},
    Known{"POST", "/v1/messages", Action::kGenerate, Api::kMessages, Scope::kGenerate},
    Known{"POST", "/v1/embeddings", Action::kEmbeddings, Api::kCompletions, Scope::kGenerate},
    Known{"POST", "/v1/rerank", Action::kRerank, Api::kCompletions, Scope::kGenerate},
    Known{"POST", "/v2/rerank", Action::kRerank, Api::kCompletions, Scope::kGenerate},
    Known{"POST", "/v1/files", Action::kUploadFile, Api::kCompletions, Scope::kGenerate},
    Known{"GET", "/v1/files", Action::kFiles, Api::kCompletions, Scope::kGenerate},
    Known{"POST", "/v1/batches", Action::kCreateBatch, Api::kCompletions, Scope::kGenerate},
    Known{"GET", "/v1/batches", Action::kBatches, Api::kCompletions, Scope::kGenerate},
    Known{"GET", "/", Action::kGreeting, Api::kCompletions, Scope::kRead},
    Known{"GET", "/api/version", Action::kOllamaVersion, Api::kOllamaChat, Scope::kRead},
    Known{"GET", "/api/tags", Action::kOllamaTags, Api::kOllamaChat, Scope::kRead},
    Known{"GET", "/api/ps", Action::kOllamaPs, Api::kOllamaChat, Scope::kRead},
    Known{"POST", "/api/show", Action::kOllamaShow, Api::kOllamaChat, Scope::kRead},
    Known{"POST", "/api/generate", Action::kGenerate, Api::kOllamaGenerate, Scope::kGenerate},
    Known{"POST", "/api/chat", Action::kGenerate, Api::kOllamaChat, Scope::kGenerate},
    Known{"POST", "/api/embed", Action::kOllamaEmbed, Api::kOllamaChat, Scope::kGenerate},
    Known{"POST", "/api/embeddings", Action::kOllamaEmbeddings, Api::kOllamaChat, Scope::kGenerate},
};
/// What changes files is done at the command line.
struct Elsewhere {
  std::string_view path;
  std::string_view instead;
};
constexpr std::array kElsewhere = {
    Elsewhere{"/api/pull", "`hearth pull` downloads models"},
    Elsewhere{"/api/create",
              "`hearth convert` and `hearth quantize` make model files; a request "
              "has its own system prompt and options"},
    Elsewhere{"/api/delete", "models are files in the model folders; remove the file"},
    Elsewhere{"/api/copy",
              "models are files in the model folders; roles in the configuration are "
              "other names for them"},
    Elsewhere{"/api/push", "models are not uploaded"},
    Elsewhere{"/api/blobs", "models are files in the model folders"},
};
constexpr std::string_view kModelPrefix = "/v1/models/";
constexpr std::string_view kRequestPrefix = "/v1/requests/";
constexpr std::string_view kEndReasoningSuffix = "/end_reasoning";
constexpr std::string_view kResponsePrefix = "/v1/responses/";
constexpr std::string_view kInputItemsSuffix = "/input_items";
constexpr std::string_view kFilePrefix = "/v1/files/";
constexpr std::string_view kContentSuffix = "/content";
constexpr std::string_view kBatchPrefix = "/v1/batches/";
constexpr std::string_view kCancelSuffix = "/cancel";
constexpr std::string_view kVersion = "/v1";

/// The part of a path between these two, still escaped; nothing: it is another path.
std::optional<std::string_view> between(std::string_view path, std::string_view prefix,
                                        std::string_view suffix) {
  if (!path.starts_with(prefix)) return std::nullopt;
  path.remove_prefix(prefix.size());
  if (!path.ends_with(suffix) || path.size() <= suffix.size()) return std::nullopt;
  return path.substr(0, path.size() - suffix.size());
}

/// An action on what a path names.
struct Named {
  std::string_view method;
  Action action = Action::kModel;
  Scope scope = Scope::kRead;
  std::string_view name;  ///< still escaped
};

/// Everything that can be done at a path with a name in it; none: it is another path.
std::vector<Named> named_at(std::string_view path) {
  if (const auto model = between(path, kModelPrefix, "")) {
    return {{"GET", Action::kModel, Scope::kRead, *model}};
  }
  if (const auto request = between(path, kRequestPrefix, kEndReasoningSuffix)) {
    return {{"POST", Action::kEndReasoning, Scope::kGenerate, *request}};
  }
  const auto is_id = [](std::optional<std::string_view> id) {
    return id && id->find('/') == std::string_view::npos;
  };
  if (const auto id = between(path, kResponsePrefix, kInputItemsSuffix); is_id(id)) {
    return {{"GET", Action::kResponseInput, Scope::kGenerate, *id}};
  }
  if (const auto id = between(path, kResponsePrefix, ""); is_id(id)) {
    return {{"GET", Action::kResponse, Scope::kGenerate, *id},
            {"DELETE", Action::kRemoveResponse, Scope::kGenerate, *id}};
  }
  if (const auto id = between(path, kFilePrefix, kContentSuffix); is_id(id)) {
    return {{"GET", Action::kFileContent, Scope::kGenerate, *id}};
  }
  if (const auto id = between(path, kFilePrefix, ""); is_id(id)) {
    return {{"GET", Action::kFile, Scope::kGenerate, *id},
            {"DELETE", Action::kRemoveFile, Scope::kGenerate, *id}};
  }
  if (const auto id = between(path, kBatchPrefix, kCancelSuffix); is_id(id)) {
    return {{"POST", Action::kCancelBatch, Scope::kGenerate, *id}};
  }
  if (const auto id = between(path, kBatchPrefix, ""); is_id(id)) {
    return {{"GET", Action::kBatch, Scope::kGenerate, *id}};
  }
  return {};
}

bool is_named(std::string_view path) { return !named_at(path).empty(); }

bool is_known(std::string_view path) {
  return is_named(path) || std::ranges::find(kRoutes, path, &Known::path) != kRoutes.end();
}

/// The known path that a client means which leaves out the version, gives it twice or ends with a
/// slash. Any other path stays as it is.
std::string meant_path(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  if (is_known(path)) return std::string(path);
  std::string with_version = std::string(kVersion) + std::string(path);
  if (is_known(with_version)) return with_version;
  const bool versioned = path.starts_with("/v1/");
  if (versioned && is_known(path.substr(kVersion.size()))) {
    return std::string(path.substr(kVersion.size()));
  }
  return std::string(path);
}

/// The first parameter of an address that means nothing here; empty: none. `beta` selects shapes
/// that Anthropic's API has anyway, a list of models has one page whatever it begins with, and
/// there is one version.
std::string_view unknown_parameter(std::string_view query) {
  while (!query.empty()) {
    const std::string_view one = query.substr(0, query.find('&'));
    const std::string_view name = one.substr(0, one.find('='));
    constexpr std::array<std::string_view, 5> kKnown = {"beta", "limit", "api-version", "after_id",
                                                        "before_id"};
    if (!name.empty() && std::ranges::find(kKnown, name) == kKnown.end()) return name;
    query.remove_prefix(std::min(one.size() + 1, query.size()));
  }
  return {};
}

/// The address has parameters, which the action reads.
bool has_query(Action action) { return action == Action::kFiles || action == Action::kBatches; }

// application/json, with or without charset=utf-8.
bool is_json(const std::vector<std::string>& types) {
  if (types.size() != 1) return false;
  std::string_view type = types.front();
  const size_t semicolon = std::min(type.find(';'), type.size());
  const std::string_view parameter = trimmed(type.substr(std::min(semicolon + 1, type.size())));
  type = trimmed(type.substr(0, semicolon));
  return equal_no_case(type, "application/json") &&
         (parameter.empty() || equal_no_case(parameter, "charset=utf-8") ||
          equal_no_case(parameter, "charset=\"utf-8\""));
}

/// Other content types can be sent by a page of another origin without a preflight. Some clients
/// send none, which a page can do, too, but no browser then leaves out where it comes from.
bool may_be_json(const HttpRequest& head) {
  const bool from_browser = !head.origins.empty() || !head.fetch_site.empty();
  return is_json(head.content_types) || (head.content_types.empty() && !from_browser);
}

int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Decodes a name in a path, where %20 is a space. Nothing if it is malformed.
std::optional<std::string> unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size() || hex(text[i + 1]) < 0 || hex(text[i + 2]) < 0) return std::nullopt;
    out += static_cast<char>(hex(text[i + 1]) * 16 + hex(text[i + 2]));
    i += 2;
  }
  return out;
}

std::optional<Refusal> check_key(const Rules& rules, const HttpRequest& head, Scope scope,
                                 Route* out) {
  if (rules.other_user) {
    return Refusal{403,
                   "this port answers the daemon's own user alone; others use keys, or the "
                   "Unix socket"};
  }
  if (rules.keys == nullptr) return std::nullopt;
  if (head.authorizations.size() + head.api_keys.size() > 1) {
    return Refusal{400, "more than one key"};
  }
  std::optional<std::string_view> key;
  if (!head.authorizations.empty()) key = bearer(head.authorizations.front());
  if (!head.api_keys.empty()) key = head.api_keys.front();
  if (!key) return Refusal{401, "want a key: Authorization: Bearer KEY, or x-api-key: KEY"};
  const Keys::Finding found = rules.keys->check(*key, scope);
  switch (found.verdict) {
    case Keys::Verdict::kAdmitted: out->owner = found.owner; return std::nullopt;
    case Keys::Verdict::kOutOfScope: return Refusal{403, "this key is not for this path"};
    case Keys::Verdict::kUnknown: break;
  }
  return Refusal{401, "no such key"};
}

std::optional<Refusal> check_form(const HttpRequest& head) {
  for (const std::string& coding : head.codings) {
    if (head.codings.size() > 1 || !equal_no_case(coding, "chunked")) {
      return Refusal{501, "of transfer codings only chunked is known"};
    }
  }
  for (const std::string& expectation : head.expectations) {
    if (!equal_no_case(expectation, "100-continue")) {
      return Refusal{417, "of expectations only 100-continue is known"};
    }
  }
  if (head.hosts.size() != 1) return Refusal{400, "want one Host field"};
  return std::nullopt;
}

// A target in the two forms that a server must accept (RFC 9112, 3.2): a path, or an absolute URI,
// whose host then overrides the Host field.
struct Target {
  std::string_view host;
  std::string_view path;
};
std::optional<Target> parse_target(const HttpRequest& head) {
  constexpr std::string_view kScheme = "http://";
  const std::string_view target = head.target;
  if (target.starts_with('/')) return Target{head.hosts.front(), target};
  if (target.size() <= kScheme.size() ||
      !equal_no_case(target.substr(0, kScheme.size()), kScheme)) {
    return std::nullopt;
  }
  const std::string_view rest = target.substr(kScheme.size());
  const size_t slash = rest.find_first_of("/?");
  if (slash == 0) return std::nullopt;
  if (slash == std::string_view::npos) return Target{rest, "/"};
  if (rest[slash] == '?') return std::nullopt;
  return Target{rest.substr(0, slash), rest.substr(slash)};
}

std::optional<Refusal> check_body(const HttpRequest& head, Action action) {
  if (!head.content_encoding.empty() && !equal_no_case(head.content_encoding, "identity")) {
    return Refusal{415, "want a body without Content-Encoding"};
  }
  if (action != Action::kUploadFile) {
    if (may_be_json(head)) return std::nullopt;
    return Refusal{415, "want Content-Type: application/json"};
  }
  if (head.content_types.size() == 1 && !form_boundary(head.content_types.front()).empty()) {
    return std::nullopt;
  }
  return Refusal{415, "want Content-Type: multipart/form-data with a boundary"};
}

/// A path that contains the name of a model, or the id of a request or an answer.
std::optional<Refusal> route_named(const Rules& rules, const HttpRequest& head,
                                   std::string_view method, std::string_view path, Route* out) {
  const std::vector<Named> all = named_at(path);
  const auto found = std::ranges::find(all, method, &Named::method);
  if (found == all.end()) {
    std::string allow;
    for (const Named& each : all) {
      allow += std::string(allow.empty() ? "" : ", ") + std::string(each.method);
    }
    return Refusal{405, "this path knows " + allow, allow};
  }
  if (auto refusal = check_key(rules, head, found->scope, out)) return refusal;
  if (method == "POST" && !may_be_json(head)) {
    return Refusal{415, "want Content-Type: application/json"};
  }
  const auto name = unescaped(found->name);
  if (!name) return Refusal{400, "the path has a malformed escape"};
  out->action = found->action;
  out->name = *name;
  return std::nullopt;
}

/// The paths of models are the same in two APIs; a header field of the client decides which it is.
Api api_of_head(const HttpRequest& head, std::string_view target) {
  const std::string path = meant_path(target.substr(0, target.find('?')));
  const bool models = path == "/v1/models" || path.starts_with(kModelPrefix);
  return models && head.anthropic ? Api::kMessages : api_of(target);
}

}  // namespace

Api api_of(std::string_view target) {
  const std::string path = meant_path(target.substr(0, target.find('?')));
  if (path.starts_with("/api/")) return Api::kOllamaChat;
  return path.starts_with("/v1/messages") ? Api::kMessages : Api::kCompletions;
}

std::optional<Refusal> route(const Rules& rules, const HttpRequest& head, Route* out) {
  out->api = api_of_head(head, head.target);
  if (auto refusal = check_form(head)) return refusal;
  const std::optional<Target> target = parse_target(head);
  if (!target) return Refusal{400, "want a path, or an address with http"};
  out->api = api_of_head(head, target->path);
  // Answered like GET, without the body.
  const std::string_view method = head.method == "HEAD" ? "GET" : std::string_view(head.method);
  if (!rules.hosts.allows(target->host)) {
    return Refusal{421, "this Host is not served here; http.allowed_hosts adds names"};
  }
  if (!origin_allowed(head.origins, head.fetch_site, rules.origins)) {
    return Refusal{403, "pages of this Origin are not admitted; http.allowed_origins adds some"};
  }
  if (head.method == "OPTIONS" && !head.origins.empty() && head.fetch_method) {
    out->action = Action::kPreflight;
    return std::nullopt;
  }
  const size_t query = target->path.find('?');
  const std::string path = meant_path(target->path.substr(0, query));
  std::string allow;
  for (const Known& known : kRoutes) {
    if (known.path != path) continue;
    if (known.method != method) {
      allow += std::string(allow.empty() ? "" : ", ") + std::string(known.method);
      continue;
    }
    out->action = known.action;
    if (known.action != Action::kModels) out->api = known.api;
    // These need no key: monitoring asks for them, and they only report whether the daemon serves.
    if (known.action != Action::kHealth && known.action != Action::kReady) {
      if (auto refusal = check_key(rules, head, known.scope, out)) return refusal;
    }
    if (query != std::string::npos && has_query(known.action)) {
      out->query = target->path.substr(query + 1);
    } else if (query != std::string::npos) {
      const std::string_view unknown = unknown_parameter(target->path.substr(query + 1));
      if (!unknown.empty()) {
        return Refusal{400, "the parameter '" + ipc::printable(unknown.substr(0, 60)) +
                                "' in the address is not known"};
      }
    }
    if (known.method == "POST") return check_body(head, known.action);
    return std::nullopt;
  }
  if (is_named(path)) {
    if (query != std::string::npos) out->query = target->path.substr(query + 1);
    return route_named(rules, head, method, path, out);
  }
  if (!allow.empty()) return Refusal{405, "this path knows " + allow, allow};
  if (auto refusal = check_key(rules, head, Scope::kRead, out); refusal && refusal->status != 403) {
    return refusal;
  }
  for (const Elsewhere& each : kElsewhere) {
    if (!path.starts_with(each.path)) continue;
    return Refusal{501, std::string(each.path) + " is not served: " + std::string(each.instead)};
  }
  return Refusal{404,
                 "there is nothing at this path; the APIs are under /v1: /v1/models, "
                 "/v1/chat/completions, /v1/responses, /v1/completions, /v1/embeddings and "
                 "Anthropic's /v1/messages, and Ollama's under /api"};
}

std::string_view reason_phrase(int status) {
  switch (status) {
    case 100: return "Continue";
    case 200: return "OK";
    case 204: return "No Content";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 421: return "Misdirected Request";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    case 529: return "Overloaded";
    default: return "Unknown";
  }
}

}  // namespace hearth::http
