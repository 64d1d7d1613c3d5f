#pragma once
// Parses requests to /v1/rerank, in the form that Jina's and Cohere's APIs share, and writes their
// answers. Pure.

#include <string>
#include <vector>

#include "daemon/http/requests/api_embeddings.h"
#include "ipc/schema/replies.h"
#include "kernels/base/result.h"

namespace hearth::http {

/// `query`; `documents`: texts, or objects with a `text`; `top_n`; `return_documents`;
/// `raw_scores`: scores as the model makes them instead of 0 to 1. Errors as in parse_call.
Result<EmbeddingsCall> parse_rerank(std::string body);
/// Best first.
std::string rerank_body(const ipc::EmbedReply& reply, const Ranking& ranking);

}  // namespace hearth::http
