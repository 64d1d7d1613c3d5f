#pragma once
// The prompt as a part of a completion's answer. Pure.

#include <string>

#include "ipc/events.h"
#include "ipc/json.h"

namespace hearth::http {

/// What the prompt's tokens stand for, together.
std::string prompt_text(const ipc::PromptLogprobsEvent& prompt);

/// [null, -1.5, ...]: one for each of the prompt's tokens.
ipc::Json prompt_logprobs_list(const ipc::PromptLogprobsEvent& prompt);

}  // namespace hearth::http
