#pragma once
// What a conversation becomes for one model: its prompt, what is looked for in the answer, and what
// the answer is bound to. Owned by the thread that prepares.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/grammar/call_grammar.h"
#include "ipc/schema/requests.h"
#include "kernels/base/result.h"
#include "models/answer/answer_format.h"
#include "models/answer/answer_parser.h"
#include "models/template/chat_template.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::worker {

/// How the answers to one request are read.
struct AnswerReading {
  models::AnswerShape shape;
  std::map<int32_t, std::string> marks;  ///< control tokens that are text here
  uint64_t call_key = 0;                 ///< makes the ids of calls
};

struct ChatRequest {
  std::string conversation;  ///< JSON, for the template
  bool with_tools = false;   ///< the template is told of some
  models::AnswerShape shape;
  std::optional<engine::CallGrammar> forced;  ///< a call that must be made
};

class ChatModel {
 public:
  /// Both outlive it; `templates` may be null.
  ChatModel(const models::Tokenizer& tokenizer, const models::ChatTemplates* templates)
      : tokenizer_(tokenizer), templates_(templates) {}

  /// A request with messages. kUnsupported names what the model's template or hearth does not know,
  /// kInvalidArgument what contradicts itself; both with the field.
  Result<ChatRequest> read(const ipc::GenerateRequest& request);

  /// What the answers to it are read by; null: they are text. `prompt_text` and `prompt` are what
  /// its conversation has become.
  std::shared_ptr<const AnswerReading> reading(const ChatRequest& request,
                                               const std::string& prompt_text,
                                               const std::vector<int32_t>& prompt, uint64_t seed);

  /// Tokens that end such an answer: of the model's own, without those that are marks, and more.
  std::vector<int32_t> end_ids(const AnswerReading& reading, std::vector<int32_t> own) const;

 private:
  const models::AnswerFormat& format(bool with_tools);
  std::optional<int32_t> control_token(const std::string& mark) const;
  Result<std::string> messages_for_template(const std::string& messages,
                                            const models::AnswerFormat& format) const;

  const models::Tokenizer& tokenizer_;
  const models::ChatTemplates* templates_;
  std::optional<models::AnswerFormat> formats_[2];  ///< without tools, with: once they are wanted
};

/// Nine letters and digits (more, or others, some templates refuse): of call `index` of a sample.
std::string call_id(uint64_t key, uint32_t sample, int32_t index);

}  // namespace hearth::worker
