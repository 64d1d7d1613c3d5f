#pragma once
// Converts one sample's tokens to text: detokenizer, stop strings, the marks in a conversation's
// answer, and the content of the next delta. Owned by the front door.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/worker/text/chat_model.h"
#include "daemon/worker/text/stop_matcher.h"
#include "ipc/schema/deltas.h"
#include "models/answer/answer_parser.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::worker {

class SampleText {
 public:
  SampleText(const models::Tokenizer& tokenizer, bool strip_first_space,
             std::vector<std::string> stops)
      : detokenizer_(tokenizer, strip_first_space), stops_(std::move(stops)) {}

  /// Reads the text as a conversation's answer. Call it before anything else. `tokenizer` outlives
  /// this object; `answered`: tokens of the answer that the prompt already contains.
  void read_as(std::shared_ptr<const AnswerReading> reading, uint32_t sample,
               const models::Tokenizer& tokenizer, const std::vector<int32_t>& answered);

  /// Tokens that an earlier worker already sent as text: processes them without output.
  void replay(const std::vector<int32_t>& ids);

  /// Takes the next token. Once stopped() it is ignored: the text ended before it.
  void push(int32_t id, std::optional<ipc::TokenLogprobs> logprobs);

  /// A stop string was completed, or the only call allowed has ended (not one that finish() closes
  /// because it was cut short). The last token counted is the one that completed it.
  bool stopped() const { return stops_.matched() || ended_; }
  const std::string& stop() const { return stops_.which(); }
  int32_t num_tokens() const { return num_tokens_; }
  int32_t num_reasoning_tokens() const { return num_reasoning_tokens_; }
  int32_t num_calls() const { return num_calls_; }

  /// The output since the last take; nothing if there was no token.
  struct Pending {
    uint32_t first_index = 0;
    std::string text;                   ///< empty if there are parts
    std::vector<ipc::DeltaPart> parts;  ///< at least one is not text
    std::vector<int32_t> ids;
    std::vector<ipc::TokenLogprobs> logprobs;
  };
  std::optional<Pending> take();

  /// The last token has come: held-back text is output now; it may be empty. `cut_short`: by a
  /// bound, not by the model.
  Pending finish(bool cut_short = false);

 private:
  std::string text_of(int32_t id);
  enum class Part { kMore, kLast, kCutShort };
  void add(std::string_view text, Part part);

  models::StreamingDetokenizer detokenizer_;
  StopMatcher stops_;
  std::shared_ptr<const AnswerReading> reading_;
  std::optional<models::AnswerParser> parser_;
  bool ended_ = false;  ///< the parser, by the text alone
  uint32_t sample_ = 0;
  int32_t num_tokens_ = 0;
  int32_t num_reasoning_tokens_ = 0;
  int32_t num_calls_ = 0;
  Pending pending_;
};

}  // namespace hearth::worker
