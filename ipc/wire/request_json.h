#pragma once
// Requests whose text was parsed by the caller, or that never were text. Included by .cpp files
// only, because of nlohmann's header.

#include "ipc/schema/messages.h"
#include "ipc/wire/json.h"
#include "kernels/base/result.h"

namespace hearth::ipc {

/// Memory of a request's values (JsonLimits::max_value_bytes): the longest list of token ids, which
/// takes 16 MiB, and what is around it.
inline constexpr size_t kMaxRequestValueBytes = 20u << 20;

/// decode_request() of a parsed text, whose strings it moves. The text's bounds on depth and keys
/// are the caller's to keep.
Result<ClientRequest> request_from_json(Json& object);

}  // namespace hearth::ipc
