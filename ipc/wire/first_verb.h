#pragma once
// What a request asks for, before it is read.

#include <optional>
#include <string_view>

#include "ipc/schema/requests.h"

namespace hearth::ipc {

/// The verb, where it stands first, as encode_request() writes it. Nothing else is looked at, and
/// the request need not be one.
std::optional<Verb> first_verb(std::string_view json);

}  // namespace hearth::ipc
