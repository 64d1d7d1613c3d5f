#pragma once
// The prompt as a part of a completion's answer. Pure.

#include <span>
#include <string>

#include "ipc/deltas.h"
#include "ipc/events.h"
#include "ipc/json.h"

namespace hearth::http {

/// What the prompt's tokens stand for, together.
std::string prompt_text(const ipc::PromptLogprobsEvent& prompt);

/// The lists of completion_logprobs(), of the prompt's tokens and then of the text's. What no token
/// stands in front of was foreseen by nothing: null.
ipc::Json echoed_logprobs(const ipc::PromptLogprobsEvent& prompt,
                          std::span<const ipc::TokenLogprobs> tokens);

/// [null, -1.5, ...]: one for each of the prompt's tokens.
ipc::Json prompt_logprobs_list(const ipc::PromptLogprobsEvent& prompt);

}  // namespace hearth::http
