#pragma once
// /v1/embeddings and /v1/messages/count_tokens: what they ask for in terms of our verbs, and their
// answers. Pure.

#include <string>
#include <string_view>

#include "ipc/schema/replies.h"
#include "ipc/schema/requests.h"
#include "kernels/base/result.h"

namespace hearth::http {

struct EmbeddingsCall {
  ipc::EmbedRequest request{};
  bool base64 = false;  ///< vectors as f32 in base64, else as lists of numbers
};

/// `input`: a text, texts, a list of token ids or lists of them. Errors as of parse_call.
Result<EmbeddingsCall> parse_embeddings(std::string_view body);
std::string embeddings_body(const ipc::EmbedReply& reply, bool base64);

/// A request of Anthropic's messages without what concerns the answer.
Result<ipc::TokenizeRequest> parse_count_tokens(std::string_view body);
std::string count_tokens_body(const ipc::TokenizeReply& reply);

}  // namespace hearth::http
