#pragma once
// The prompt as a part of a completion's answer. Pure.

#include <string>

#include "ipc/schema/events.h"

namespace hearth::http {

/// What the prompt's tokens stand for, together.
std::string prompt_text(const ipc::PromptLogprobsEvent& prompt);

/// [null,-1.5,...]: one for each of the prompt's tokens, appended.
void append_prompt_logprobs(const ipc::PromptLogprobsEvent& prompt, std::string* out);

}  // namespace hearth::http
