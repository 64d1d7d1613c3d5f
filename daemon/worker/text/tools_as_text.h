#pragma once
// Functions, calls and results as text of a conversation, for chat templates that make nothing of
// them. The form is that of Hermes (models::find_tool_format("hermes")).

#include "ipc/wire/json.h"
#include "kernels/base/result.h"

namespace hearth::worker {

/// Describes `tools` at the end of the first system message, or in a new one, and turns calls and
/// results in `messages` into text: results become a message of the user. Marks for the cache stay;
/// those of tools go to the system message. `messages`: a list of objects. kInvalid if a message
/// that becomes text has content that is none, or a call without an object.
Result<ipc::Json> with_tools_as_text(ipc::Json messages, const ipc::Json& tools);

}  // namespace hearth::worker
