// Errors in the format of each API.

#include "daemon/http/answers/api_answer.h"
#include "ipc/wire/json.h"

namespace hearth::http {
namespace {

using ipc::Json;

std::string_view openai_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 501:
    case 505: return "invalid_request_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

std::string_view anthropic_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 501:
    case 505: return "invalid_request_error";
    case 529: return "overloaded_error";
    default: return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

// The error code that clients of this API test for, if it has one.
std::string openai_code(int status, const Error& error) {
  const ErrorCode code = error.code;
  if (status == 401) return "invalid_api_key";
  if (code == ErrorCode::kNotFound && error.field == "previous_response_id") {
    return "previous_response_not_found";
  }
  const bool names_id = error.field == "id" || error.field.ends_with("_id");
  if (code == ErrorCode::kNotFound && names_id) return "not_found";
  if (code == ErrorCode::kContextOverflow) return "context_length_exceeded";
  if (status == 404) return code == ErrorCode::kNotFound ? "model_not_found" : "not_found";
  if (code == ErrorCode::kBusy) return "rate_limit_exceeded";
  return std::string(name(code));
}

}  // namespace

int status_of(Api api, ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnknownField:
    case ErrorCode::kProtocol:
    case ErrorCode::kContextOverflow:
    case ErrorCode::kUnsupported:
    case ErrorCode::kCancelled: return 400;
    case ErrorCode::kForbidden: return 403;
    case ErrorCode::kNotFound: return 404;
    case ErrorCode::kTooLarge: return 413;
    case ErrorCode::kBusy: return 429;
    case ErrorCode::kUnavailable:
    case ErrorCode::kOutOfMemory: return api == Api::kMessages ? 529 : 503;
    case ErrorCode::kDeadline: return 504;
    case ErrorCode::kPoison:
    case ErrorCode::kCorrupt:
    case ErrorCode::kIo:
    case ErrorCode::kLost:
    case ErrorCode::kInternal: break;
  }
  return 500;
}

std::string error_body(Api api, int status, const Error& error, std::string_view request_id) {
  if (is_ollama(api)) return ipc::dump_json({{"error", error.message}});
  if (api == Api::kMessages) {
    return ipc::dump_json(
        {{"type", "error"},
         {"error", {{"type", std::string(anthropic_type(status))}, {"message", error.message}}},
         {"request_id", request_id.empty() ? Json() : Json(request_id)}});
  }
  return ipc::dump_json({{"error",
                          {{"message", error.message},
                           {"type", std::string(openai_type(status))},
                           {"param", error.field.empty() ? Json() : Json(error.field)},
                           {"code", openai_code(status, error)}}}});
}

}  // namespace hearth::http
