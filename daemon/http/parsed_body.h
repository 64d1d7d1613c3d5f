#pragma once
// A request's parsed body. Included by connection*.cpp only.

#include <cstddef>
#include <variant>

#include "daemon/http/requests/api_embeddings.h"
#include "daemon/http/requests/token_request.h"
#include "daemon/http/routes.h"
#include "kernels/base/result.h"

namespace hearth::http {

/// A parsed body, with the facts about its request that the answer needs.
struct ParsedBody {
  Route route;
  bool may_chunk = false;
  size_t bytes = 0;
  using Asked = std::variant<Call, TokenCall, EmbeddingsCall>;
  Result<Asked> asked;
};

}  // namespace hearth::http
