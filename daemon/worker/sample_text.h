#pragma once
// One sample on its way from tokens to text: detokenizer, stop strings, and what a delta of it
// will hold. Owned by the front door.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/worker/stop_matcher.h"
#include "ipc/messages.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::worker {

class SampleText {
 public:
  SampleText(const models::Tokenizer& tokenizer, bool strip_first_space,
             std::vector<std::string> stops)
      : detokenizer_(tokenizer, strip_first_space), stops_(std::move(stops)) {}

  /// Tokens that an earlier worker has sent with their text: goes over them without output.
  void replay(const std::vector<int32_t>& ids);

  /// Takes the next token. Once stopped() it is ignored: the text ended before it.
  void push(int32_t id, std::optional<ipc::TokenLogprobs> logprobs);

  /// No token follows: what was held back is the rest of the text.
  std::string finish();

  /// A stop string was completed; the last token counted is the one that did it.
  bool stopped() const { return stops_.matched(); }
  const std::string& stop() const { return stops_.which(); }
  int32_t num_tokens() const { return num_tokens_; }

  /// What came since the last take; nothing when no token did.
  struct Pending {
    uint32_t first_index = 0;
    std::string text;
    std::vector<int32_t> ids;
    std::vector<ipc::TokenLogprobs> logprobs;
  };
  std::optional<Pending> take();

 private:
  models::StreamingDetokenizer detokenizer_;
  StopMatcher stops_;
  int32_t num_tokens_ = 0;
  Pending pending_;
};

}  // namespace hearth::worker
