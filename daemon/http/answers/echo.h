#pragma once
// The prompt as part of a completion's answer. Pure.

#include <string>

#include "ipc/schema/events.h"

namespace hearth::http {

/// The text of the prompt's tokens.
std::string prompt_text(const ipc::PromptLogprobsEvent& prompt);

/// Appends [null,-1.5,...], one element per token of the prompt.
void append_prompt_logprobs(const ipc::PromptLogprobsEvent& prompt, std::string* out);

}  // namespace hearth::http
