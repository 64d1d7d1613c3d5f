#pragma once
// A request of one of the HTTP APIs that must be accepted.

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <utility>

#include "daemon/http/requests/api_request.h"

namespace hearth::http {

inline Call accepted(Api api, std::string_view body) {
  Result<Call> call = parse_call(api, std::string(body));
  REQUIRE_MESSAGE(call.ok(), body << "\n" << (call.ok() ? "" : call.error().message));
  return std::move(call).value();
}

}  // namespace hearth::http
