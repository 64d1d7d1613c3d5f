#pragma once
// Renders a conversation to the prompt's tokens.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"
#include "models/template/chat_template.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::worker {

struct ChatPrompt {
  std::string text;  ///< as the template rendered it
  /// The template's own control tokens become those tokens; the conversation's words stay text.
  std::vector<int32_t> ids;
};

/// `conversation`, `template_name`, `surroundings` and errors as in ChatTemplates::render. The BOS
/// token is added in front if the model's metadata requires it, unless the template has written it.
/// A text of more than `most_bytes` is not tokenized: kContextOverflow. `pause` as in
/// models::EncodeOptions.
Result<ChatPrompt> chat_prompt(const models::Tokenizer& tokenizer,
                               const models::ChatTemplates& templates,
                               std::string_view template_name, std::string_view conversation,
                               const models::ChatSurroundings& surroundings,
                               uint64_t most_bytes = UINT64_MAX,
                               models::EncodePause* pause = nullptr);

}  // namespace hearth::worker
