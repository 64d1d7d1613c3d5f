#pragma once
// Answers of OpenAI's responses API that are kept, so that a later request can continue them by
// their id. Plain data, between the HTTP front door and whatever keeps them.

#include <cstddef>
#include <cstdint>
#include <string>

namespace hearth::http {

struct KeptResponse {
  std::string id;           ///< of the answer
  std::string previous_id;  ///< the answer that it continues; "": none
  int64_t created_s = 0;    ///< seconds since 1970
  std::string head;         ///< JSON object: the answer without its output
  std::string output;       ///< JSON list of the answer's items
  std::string input;        ///< JSON list of the request's own items

  size_t bytes() const {
    return id.size() + previous_id.size() + head.size() + output.size() + input.size();
  }
};

/// A question about the answers kept for one user.
struct KeptQuery {
  enum class Kind {
    kResponse,      ///< the answer, as it was sent
    kConversation,  ///< {"items":[...]}: all items of the conversation that ends with the answer
    kInputItems,    ///< {"items":[...]}: the same without the answer's own output
    kRemove,        ///< removes the answer; an empty text
  };
  Kind kind = Kind::kResponse;
  std::string id;
  size_t max_bytes = SIZE_MAX;  ///< of the items
};

/// Numbers about kept answers, for /metrics.
struct KeptStats {
  bool enabled = false;
  int64_t entries = 0;
  int64_t bytes = 0;
  uint64_t not_kept = 0;  ///< answers that could not be written
};

}  // namespace hearth::http
