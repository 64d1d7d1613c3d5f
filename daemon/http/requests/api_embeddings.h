#pragma once
// Parses requests to /v1/embeddings and Ollama's of vectors, and writes their answers. Pure.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/http/requests/api_request.h"
#include "ipc/schema/replies.h"
#include "ipc/schema/requests.h"
#include "kernels/base/result.h"

namespace hearth::http {

/// The shape of an answer of Ollama's API: that of /api/embed, or of the older /api/embeddings.
enum class OllamaVectors { kNone, kList, kOne };

/// An answer of /v1/rerank.
struct Ranking {
  uint64_t top_n = 0;                    ///< the best so many
  std::vector<std::string> documents{};  ///< in the answer, too; or empty
};

/// How an embed reply is answered.
struct VectorsAnswer {
  bool base64 = false;      ///< vectors as f32 in base64; false: as lists of numbers
  uint64_t dimensions = 0;  ///< that the client wants the vectors to have; 0: any
  OllamaVectors ollama = OllamaVectors::kNone;
  std::shared_ptr<const Ranking> ranking{};  ///< null: vectors are wanted
};

struct EmbeddingsCall {
  ipc::EmbedRequest request{};
  VectorsAnswer answer{};
  std::vector<std::string_view> ignored{};  ///< as in Call
  std::optional<int64_t> keep_alive_ms{};   ///< as in Call
};

/// `input`: a text, a list of texts, a list of token ids or a list of such lists. Errors as in
/// parse_call.
Result<EmbeddingsCall> parse_embeddings(std::string body);
/// kUnsupported if the vectors have another size than the client wants.
Result<std::string> vectors_body(const ipc::EmbedReply& reply, const VectorsAnswer& answer);
/// POST /api/embed, or /api/embeddings (`legacy`).
Result<EmbeddingsCall> parse_ollama_embed(bool legacy, std::string body);

}  // namespace hearth::http
