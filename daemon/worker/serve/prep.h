#pragma once
// From a request as it came to what the engine computes: tokens, bounds, sampling.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "daemon/worker/serve/embed_jobs.h"
#include "daemon/worker/text/chat_model.h"
#include "daemon/worker/text/constraint_cache.h"
#include "engine/request.h"
#include "ipc/schema/events.h"
#include "ipc/schema/replies.h"
#include "ipc/schema/worker_messages.h"
#include "kernels/base/result.h"
#include "models/template/chat_template.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::worker {

/// What preparing needs to know of the model. Immutable.
struct PrepModel {
  std::string name;
  int32_t context_length = 0;
  const models::Tokenizer* tokenizer = nullptr;      ///< outlives the thread
  std::vector<int32_t> end_ids;                      ///< tokens that end a generation
  std::string draft;                                 ///< the model that guesses too; "": none
  std::shared_ptr<ConstraintCache> constraints;      ///< of the thread that prepares
  const models::ChatTemplates* templates = nullptr;  ///< of conversations; outlives the thread
  std::shared_ptr<ChatModel> chat{};                 ///< of the thread that prepares
  std::string architecture{};
  bool generates = true;
  models::Pooling pooling = models::Pooling::kNone;  ///< as the model's file says
  std::optional<int32_t> text_end{};                 ///< closes a text that is embedded
  ipc::SamplingDefaults sampling{};                  ///< where a request does not say
};
PrepModel make_prep_model(std::string name, int32_t context_length,
                          const models::Tokenizer& tokenizer, std::string draft = "",
                          const models::ChatTemplates* templates = nullptr);

/// A request ready for the engine; times are filled in by the front door.
struct PreparedRequest {
  engine::Request request;
  bool strip_first_space = false;  ///< the shown text begins at the sequence's first real token
  std::shared_ptr<const AnswerReading> reading{};  ///< null: the output is text
  std::vector<int32_t> answered{};                 ///< tokens of the answer that the prompt has
};

struct PrepResult {
  uint64_t number = 0;
  std::variant<PreparedRequest, ipc::TokenizeReply, PreparedEmbed, Error> outcome;
};

/// Renders, tokenizes and checks one request. kContextOverflow has the prompt's size and the
/// context's; a text that could not fit whatever its tokens is refused before it is tokenized.
/// Nothing is ever cut off. `pause` is called while a long text is tokenized.
PrepResult prepare(const PrepModel& model, const ipc::WorkerRequest& request,
                   models::EncodePause* pause = nullptr);

}  // namespace hearth::worker
