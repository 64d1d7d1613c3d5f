#include "daemon/worker/text/prompt_logprobs.h"

#include <fmt/core.h>

#include <string_view>

#include "ipc/text/utf8.h"
#include "ipc/wire/json_text.h"
#include "kernels/base/chars.h"

namespace hearth::worker {
namespace {

// With its punctuation and its part of the other members.
constexpr size_t kTokenBytes = 40;
constexpr size_t kTopBytes = 50;

/// A list with `write(index)` for each item.
template <class Write>
void append_list(size_t size, models::EncodePause* pause, std::string* out, Write write) {
  *out += '[';
  for (size_t i = 0; i < size; ++i) {
    if (i > 0) *out += ',';
    write(i);
    if (pause != nullptr && (i + 1) % kPromptLogprobsSlice == 0) pause->pause();
  }
  *out += ']';
}

}  // namespace

std::string shown_token(const models::Tokenizer& tokenizer, int32_t id) {
  // A control token has no piece, so its vocabulary entry is shown.
  std::string piece(tokenizer.is_control(id) ? tokenizer.entry(id) : tokenizer.piece(id));
  if (ipc::is_valid_utf8(piece)) return piece;
  std::string out = "bytes:";
  for (const char byte : piece) out += fmt::format("\\x{:02x}", byte_of(byte));
  return out;
}

std::string encode_prompt_logprobs(const models::Tokenizer& tokenizer,
                                   std::span<const int32_t> prompt,
                                   const engine::PromptLogprobsEvent& event,
                                   models::EncodePause* pause) {
  std::string out;
  out.reserve(prompt_logprobs_bytes(prompt, event));
  const auto text_of = [&](int32_t id) { ipc::append_quoted(shown_token(tokenizer, id), &out); };
  out += R"({"event":"prompt_logprobs","logprobs":)";
  append_list(event.logprobs.size(), pause, &out,
              [&](size_t i) { ipc::append_number(event.logprobs[i], &out); });
  out += R"(,"ids":)";
  append_list(prompt.size(), pause, &out, [&](size_t i) { out += std::to_string(prompt[i]); });
  out += R"(,"texts":)";
  append_list(prompt.size(), pause, &out, [&](size_t i) { text_of(prompt[i]); });
  out += R"(,"top":)";
  append_list(event.top.size(), pause, &out, [&](size_t i) {
    append_list(event.top[i].size(), nullptr, &out, [&](size_t j) {
      const engine::TokenLogprob& top = event.top[i][j];
      out += R"({"token":)";
      out += std::to_string(top.token);
      out += R"(,"logprob":)";
      ipc::append_number(top.logprob, &out);
      out += R"(,"text":)";
      text_of(top.token);
      out += '}';
    });
  });
  out += '}';
  return out;
}

size_t prompt_logprobs_bytes(std::span<const int32_t> prompt,
                             const engine::PromptLogprobsEvent& event) {
  const size_t tops = event.top.empty() ? 0 : event.top.front().size() * event.top.size();
  return prompt.size() * kTokenBytes + tops * kTopBytes;
}

}  // namespace hearth::worker
