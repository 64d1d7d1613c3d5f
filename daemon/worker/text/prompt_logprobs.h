#pragma once
// The texts of tokens, and the log probabilities of a prompt, as clients see them.

#include <cstdint>
#include <span>
#include <string>

#include "engine/request.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::worker {

/// The text of a token as shown to clients: see ipc::TokenLogprobs.
std::string shown_token(const models::Tokenizer& tokenizer, int32_t id);

/// The event of `prompt` as JSON, written without a tree of values, which would take ten times the
/// memory. A long prompt takes long: `pause` is called after each kPromptLogprobsSlice tokens.
std::string encode_prompt_logprobs(const models::Tokenizer& tokenizer,
                                   std::span<const int32_t> prompt,
                                   const engine::PromptLogprobsEvent& event,
                                   models::EncodePause* pause = nullptr);
inline constexpr size_t kPromptLogprobsSlice = 256;

/// About the length of that JSON.
size_t prompt_logprobs_bytes(std::span<const int32_t> prompt,
                             const engine::PromptLogprobsEvent& event);

}  // namespace hearth::worker
