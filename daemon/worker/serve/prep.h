#pragma once
// Prepares a received request for the engine: tokens, bounds, sampling.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "daemon/worker/serve/adapter_files.h"
#include "daemon/worker/serve/embed_jobs.h"
#include "daemon/worker/text/chat_model.h"
#include "daemon/worker/text/constraint_cache.h"
#include "engine/request.h"
#include "ipc/schema/events.h"
#include "ipc/schema/replies.h"
#include "ipc/schema/worker_messages.h"
#include "kernels/base/result.h"
#include "models/ranking/ranker.h"
#include "models/template/chat_template.h"
#include "models/tokenizer/text/fill_marks.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::worker {

/// The facts about the model that preparing needs. Immutable.
struct PrepModel {
  std::string name;
  int32_t context_length = 0;
  const models::Tokenizer* tokenizer = nullptr;      ///< outlives the thread
  std::vector<int32_t> end_ids;                      ///< tokens that end a generation
  std::string draft;                                 ///< name of the draft model; "": none
  std::shared_ptr<ConstraintCache> constraints;      ///< used only by the preparing thread
  const models::ChatTemplates* templates = nullptr;  ///< for conversations; outlives the thread
  std::shared_ptr<ChatModel> chat{};                 ///< used only by the preparing thread
  std::string architecture{};
  std::string fingerprint{};  ///< of its file
  bool generates = true;
  models::CanvasModel canvas{};                      ///< of a model that denoises
  models::Pooling pooling = models::Pooling::kNone;  ///< as given in the model's file
  std::optional<int32_t> text_end{};                 ///< appended to a text to embed
  std::optional<models::FillMarks> fill_marks{};     ///< for requests with `suffix`
  std::shared_ptr<const models::Ranker> ranker{};    ///< null: the model does not rank
  ipc::SamplingDefaults sampling{};                  ///< for fields that a request does not set
  std::shared_ptr<AdapterFiles> adapters{};          ///< used only by the preparing thread
};
PrepModel make_prep_model(std::string name, int32_t context_length,
                          const models::Tokenizer& tokenizer, std::string draft = "",
                          const models::ChatTemplates* templates = nullptr,
                          std::string tool_form = "template");

/// A request ready for the engine; the front door sets its times.
struct PreparedRequest {
  engine::Request request;
  bool strip_first_space = false;  ///< drop a leading space from the first real token's text
  std::shared_ptr<const AnswerReading> reading{};  ///< null: the output is text
  std::vector<int32_t> answered{};     ///< tokens of the answer that the prompt already contains
  std::vector<std::string> relaxed{};  ///< parts of a schema that were left out, in words
  std::vector<std::string> without_effect{};  ///< see ipc::StartedEvent
};

struct PrepResult {
  uint64_t number = 0;
  std::variant<PreparedRequest, ipc::TokenizeReply, PreparedEmbed, Error> outcome;
};

/// Renders, tokenizes and checks one request. kContextOverflow gives the sizes of the prompt and
/// the context; a text too long to fit however it is tokenized is refused beforehand. Nothing is
/// ever truncated. `pause` is called while a long text is tokenized.
PrepResult prepare(const PrepModel& model, const ipc::WorkerRequest& request,
                   models::EncodePause* pause = nullptr);

}  // namespace hearth::worker
