#pragma once
// From a conversation to the tokens that a model shall go on from.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"
#include "models/template/chat_template.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::worker {

struct ChatPrompt {
  std::string text;          ///< as the template wrote it
  std::vector<int32_t> ids;  ///< control tokens that the text names are those tokens
};

/// `conversation`, `template_name`, `surroundings` and errors as in ChatTemplates::render. The BOS
/// token goes in front where the model's metadata put one there, unless the template has written it
/// itself. A text of more than `most_bytes` is not tokenized: kContextOverflow. `pause` as in
/// models::EncodeOptions.
Result<ChatPrompt> chat_prompt(const models::Tokenizer& tokenizer,
                               const models::ChatTemplates& templates,
                               std::string_view template_name, std::string_view conversation,
                               const models::ChatSurroundings& surroundings,
                               uint64_t most_bytes = UINT64_MAX,
                               models::EncodePause* pause = nullptr);

}  // namespace hearth::worker
