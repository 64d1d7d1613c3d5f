#pragma once
// Log probabilities in the format of OpenAI's completion APIs. Numbers and strings are copied
// unparsed from a delta's JSON. Included by this folder's .cpp files only.

#include <cstddef>
#include <string>

#include "ipc/schema/events.h"
#include "ipc/wire/logprob_texts.h"

namespace hearth::http {

/// Of chat: elements of "content", each
///   {"token":...,"logprob":...,"bytes":[...],"top_logprobs":[{"token":...},...]}
void append_chat_logprobs(const ipc::LogprobTexts& texts, std::string* members);
/// {"content":[members],"refusal":null}
void append_chat_logprobs_object(const std::string& members, std::string* out);

/// Of completions: four lists with one element per token.
class CompletionLogprobs {
 public:
  /// `offset`: number of characters before these tokens.
  explicit CompletionLogprobs(size_t offset = 0) : offset_(offset) {}

  void add(const ipc::LogprobTexts& texts);
  /// A prompt's tokens; the first has no log probability.
  void add_prompt(const ipc::PromptLogprobsEvent& prompt);
  /// {"tokens":[...],"token_logprobs":[...],"top_logprobs":[...],"text_offset":[...]}
  void append_to(std::string* out) const;
  size_t offset() const { return offset_; }

 private:
  void add(const ipc::LogprobText& own, const ipc::LogprobText* top, size_t num_top,
           bool has_logprob);

  size_t offset_;
  std::string tokens_;
  std::string logprobs_;
  std::string tops_;
  std::string offsets_;
  std::string text_;  // of the current token
};

}  // namespace hearth::http
