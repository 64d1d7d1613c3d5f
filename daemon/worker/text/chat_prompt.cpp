#include "daemon/worker/text/chat_prompt.h"

#include <fmt/core.h>

namespace hearth::worker {

Result<ChatPrompt> chat_prompt(const models::Tokenizer& tokenizer,
                               const models::ChatTemplates& templates,
                               std::string_view template_name, std::string_view conversation,
                               const models::ChatSurroundings& surroundings, uint64_t most_bytes,
                               models::EncodePause* pause) {
  ChatPrompt out;
  HEARTH_ASSIGN_OR_RETURN(out.text, templates.render(template_name, conversation, surroundings));
  if (out.text.size() > most_bytes) {
    return Error::context_overflow(
        fmt::format("the template makes {} bytes of them, the context holds at most {}",
                    out.text.size(), most_bytes),
        "messages");
  }
  const std::string& bos = surroundings.bos_token;
  const bool has_bos = !bos.empty() && out.text.starts_with(bos);
  out.ids =
      tokenizer.encode(out.text, {.add_bos = !has_bos, .parse_special = true, .pause = pause});
  return out;
}

}  // namespace hearth::worker
