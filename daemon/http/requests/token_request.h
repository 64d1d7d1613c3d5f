#pragma once
// Parses requests about tokens (/tokenize, /detokenize, /tokenizer_info and Anthropic's
// count_tokens), and writes their answers. Pure.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/http/requests/api_request.h"
#include "ipc/schema/replies.h"
#include "ipc/schema/requests.h"
#include "kernels/base/result.h"

namespace hearth::http {

/// How a tokenize reply is answered.
enum class TokenAnswer {
  kOurs,     ///< like the socket's verb
  kIds,      ///< vLLM's /tokenize, llama-server's, too
  kText,     ///< their /detokenize
  kSpecial,  ///< vLLM's /tokenizer_info
  kCount,    ///< Anthropic's count_tokens
};

struct TokenCall {
  ipc::TokenizeRequest request{};
  TokenAnswer answer = TokenAnswer::kOurs;
  std::vector<std::string_view> ignored{};  ///< as in Call, and what only affects an answer
  int32_t volatile_lines = 0;               ///< as in Call
};

/// POST /tokenize. `text`, `messages` and others: like the socket's verb. `prompt` or `content`,
/// with `add_special_tokens` or `add_special`: vLLM's and llama-server's.
Result<TokenCall> parse_tokenize(std::string body);
/// POST /detokenize: `tokens`.
Result<TokenCall> parse_detokenize(std::string body);
/// GET /tokenizer_info, of the default model.
TokenCall tokenizer_info();
/// A request of Anthropic's messages API, of which only the prompt counts.
Result<TokenCall> parse_count_tokens(std::string body, const PromptRules& rules = {});

std::string tokens_body(const ipc::TokenizeReply& reply, TokenAnswer answer);

}  // namespace hearth::http
