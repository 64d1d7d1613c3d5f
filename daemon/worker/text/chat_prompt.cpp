#include "daemon/worker/text/chat_prompt.h"

#include <fmt/core.h>

#include <utility>

namespace hearth::worker {

Result<ChatPrompt> chat_prompt(const models::Tokenizer& tokenizer,
                               const models::ChatTemplates& templates,
                               std::string_view template_name, std::string_view conversation,
                               const models::ChatSurroundings& surroundings, uint64_t most_bytes,
                               models::EncodePause* pause) {
  ChatPrompt out;
  HEARTH_ASSIGN_OR_RETURN(models::TracedText rendered,
                          templates.render(template_name, conversation, surroundings));
  out.text = std::move(rendered.text);
  if (out.text.size() > most_bytes) {
    return Error::context_overflow(
        fmt::format("the template makes {} bytes of them, the context holds at most {}",
                    out.text.size(), most_bytes),
        "messages");
  }
  const std::string& bos = surroundings.bos_token;
  const size_t first_data = rendered.data.empty() ? out.text.size() : rendered.data.front().begin;
  const bool has_bos = !bos.empty() && bos.size() <= first_data && out.text.starts_with(bos);
  out.ids = tokenizer.encode(
      out.text,
      {.add_bos = !has_bos, .parse_special = true, .data = rendered.data, .pause = pause});
  return out;
}

}  // namespace hearth::worker
