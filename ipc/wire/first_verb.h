#pragma once
// The verb of a request, without parsing the request.

#include <optional>
#include <string_view>

#include "ipc/schema/requests.h"

namespace hearth::ipc {

/// The verb, if it is the first member, as encode_request() writes it. The rest is not looked at
/// and need not be valid.
std::optional<Verb> first_verb(std::string_view json);

}  // namespace hearth::ipc
