#pragma once
// Interprets a conversation for one model: renders its prompt, determines how to read the answer,
// and which grammar constrains it. Owned by the preparing thread.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/grammar/call_grammar.h"
#include "engine/request.h"
#include "ipc/schema/requests.h"
#include "ipc/wire/json.h"
#include "kernels/base/result.h"
#include "models/answer/answer_format.h"
#include "models/answer/answer_parser.h"
#include "models/template/chat_template.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::worker {

/// How to read the answers to one request.
struct AnswerReading {
  models::AnswerShape shape;
  std::map<int32_t, std::string> marks;  ///< control tokens that the answer contains as text
  uint64_t call_key = 0;                 ///< seed of the ids of calls
};

struct ChatRequest {
  std::string conversation;  ///< JSON, for the template
  bool with_tools = false;   ///< the conversation defines tools
  models::AnswerShape shape;
  std::vector<std::string> marks;            ///< control tokens whose text is part of the answer
  std::optional<engine::CallGrammar> calls;  ///< what the answer's calls must be
  bool no_reasoning = false;                 ///< it is asked for, and the template has none
  /// Without reasoning: the token that would begin it, if it is one token.
  std::optional<int32_t> banned{};
};

class ChatModel {
 public:
  /// Both outlive this object; `templates` may be null. `tool_form`: see ipc::EngineSettings.
  ChatModel(const models::Tokenizer& tokenizer, const models::ChatTemplates* templates,
            std::string tool_form = "template")
      : tokenizer_(tokenizer), templates_(templates), tool_form_(std::move(tool_form)) {}

  /// Reads a request with messages. kUnsupported names a feature that the model's template or
  /// hearth does not support, kInvalidArgument a contradiction; both give the field.
  Result<ChatRequest> read(const ipc::GenerateRequest& request);

  /// How to read the answers; null: as plain text. `prompt_text` and `prompt` are the rendered
  /// conversation.
  std::shared_ptr<const AnswerReading> reading(const ChatRequest& request,
                                               const std::string& prompt_text,
                                               const std::vector<int32_t>& prompt, uint64_t seed);

  /// The reasoning of such an answer, with a bound of `max_tokens`; 0: without one, but it can be
  /// ended. Null: the answer has no reasoning that is known.
  std::shared_ptr<const engine::ReasoningBound> reasoning_bound(const AnswerReading& reading,
                                                                int32_t max_tokens) const;

  /// Tokens that end such an answer: the model's own, except those that serve as marks, and
  /// additional ones.
  std::vector<int32_t> end_ids(const AnswerReading& reading, std::vector<int32_t> own) const;

 private:
  const models::AnswerFormat& format(bool with_tools);
  /// Whether the request asks for reasoning, or bounds it, and the template has none.
  bool reasoning_in_vain(const ipc::GenerateRequest& request,
                         const models::AnswerFormat& format) const;
  /// Reads the functions, whose list loses what templates do not need, and what may be called.
  static Result<void> read_tools(const ipc::GenerateRequest& request,
                                 const models::AnswerFormat& format, ipc::Json* tools,
                                 ChatRequest* out);
  /// The tokens of `text` where other text precedes it.
  std::vector<int32_t> tokens_within(const std::string& text) const;
  std::optional<int32_t> control_token(const std::string& mark) const;
  /// Members for the template that switch reasoning, each followed by a comma.
  Result<std::string> reasoning_members(const std::string& reasoning,
                                        const models::AnswerFormat& format) const;
  Result<std::string> messages_for_template(const std::string& messages,
                                            const models::AnswerFormat& format) const;

  const models::Tokenizer& tokenizer_;
  const models::ChatTemplates* templates_;
  const std::string tool_form_;
  std::optional<models::AnswerFormat> formats_[2];  ///< [with_tools]; filled on first use
};

/// An id of nine letters and digits, because some templates refuse any other form, for call `index`
/// of a sample.
std::string call_id(uint64_t key, uint32_t sample, int32_t index);

}  // namespace hearth::worker
