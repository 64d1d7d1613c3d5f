#pragma once
// Reasoning in a conversation that names the model it is of. Another model does not see it.

#include <string_view>

#include "ipc/wire/json.h"

namespace hearth::worker {

/// Removes ipc::kReasoningOf from the messages of a conversation, in the form that
/// ChatTemplates::render takes. Where it is not `fingerprint`, removes the message's reasoning,
/// too, and the message if nothing else is in it. Returns whether any reasoning was removed.
bool leave_out_foreign_reasoning(ipc::Json& conversation, std::string_view fingerprint);

}  // namespace hearth::worker
