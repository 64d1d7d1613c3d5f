#include "daemon/http/answers/echo.h"

#include <charconv>
#include <string_view>

#include "ipc/text/utf8.h"
#include "ipc/wire/json_text.h"

namespace hearth::http {

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

void append_prompt_logprobs(const ipc::PromptLogprobsEvent& prompt, std::string* out) {
  *out += "[null";
  for (const float logprob : prompt.logprobs) {
    *out += ',';
    ipc::append_number(logprob, out);
  }
  *out += ']';
}

}  // namespace hearth::http
