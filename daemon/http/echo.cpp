#include "daemon/http/echo.h"

#include <charconv>
#include <string_view>
#include <vector>

#include "daemon/http/answer_parts.h"
#include "ipc/utf8.h"

namespace hearth::http {

using ipc::Json;

std::string prompt_text(const ipc::PromptLogprobsEvent& prompt) {
  constexpr std::string_view kMark = "bytes:\\x";  // see ipc::TokenLogprobs
  std::string bytes;
  for (const std::string& text : prompt.texts) {
    if (!text.starts_with(kMark)) {
      bytes += text;
      continue;
    }
    for (size_t at = kMark.size(); at + 2 <= text.size(); at += 4) {
      unsigned value = 0;
      std::from_chars(text.data() + at, text.data() + at + 2, value, 16);
      bytes += static_cast<char>(value);
    }
  }
  return ipc::to_valid_utf8(bytes);
}

Json echoed_logprobs(const ipc::PromptLogprobsEvent& prompt,
                     std::span<const ipc::TokenLogprobs> tokens) {
  std::vector<ipc::TokenLogprobs> all;
  for (size_t i = 0; i < prompt.texts.size(); ++i) {
    ipc::TokenLogprobs& token = all.emplace_back();
    token.text = prompt.texts[i];
    if (i > 0 && i <= prompt.logprobs.size()) token.logprob = prompt.logprobs[i - 1];
    if (i > 0 && i <= prompt.top.size()) token.top = prompt.top[i - 1];
  }
  all.insert(all.end(), tokens.begin(), tokens.end());
  size_t offset = 0;
  Json out = completion_logprobs(all, &offset);
  if (!prompt.texts.empty()) {
    out["token_logprobs"][0] = nullptr;
    out["top_logprobs"][0] = nullptr;
  }
  return out;
}

Json prompt_logprobs_list(const ipc::PromptLogprobsEvent& prompt) {
  Json out = Json::array({nullptr});
  for (const float logprob : prompt.logprobs) out.push_back(logprob);
  return out;
}

}  // namespace hearth::http
