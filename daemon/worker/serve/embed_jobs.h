#pragma once
// Embedding requests. Each text is a separate request to the engine, so that texts of several
// requests share its steps. Only some are posted at once, because the engine's queue is shared with
// all requests. Owned by the front door.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/request.h"
#include "ipc/schema/replies.h"
#include "kernels/base/mailbox.h"
#include "kernels/base/result.h"
#include "models/ranking/ranker.h"

namespace hearth::worker {

/// A request's texts, ready for the engine; EmbedJobs sets their ids and times.
struct PreparedEmbed {
  std::vector<engine::Request> texts;
  std::shared_ptr<const models::Ranker> ranker{};  ///< not null: scores instead of vectors
  bool as_chances = true;                          ///< these are 0 to 1
};

class EmbedJobs {
 public:
  EmbedJobs(Mailbox<engine::EngineCommand>& commands, std::string model)
      : commands_(commands), model_(std::move(model)) {}

  /// The outcome of a request that has ended.
  struct Outcome {
    uint64_t number = 0;
    Result<ipc::EmbedReply> reply;
  };
  /// If it returns an outcome, the engine refused a text and the request has ended.
  std::optional<Outcome> begin(uint64_t number, int64_t received_us, PreparedEmbed prepared);
  /// The answer is kCancelled once its running texts have ended.
  void cancel(uint64_t number);

  /// Whether the engine request is a text of such a job.
  static bool owns(engine::RequestId id) { return id >> 63 != 0; }
  /// Handles an engine event for such a text.
  std::optional<Outcome> take(const engine::EmbeddingEvent& event);
  std::optional<Outcome> take(const engine::RequestDoneEvent& event);
  std::optional<Outcome> take(const engine::RequestFailedEvent& event);

 private:
  struct Job {
    std::vector<engine::Request> texts;  ///< their prompts are moved to the engine
    size_t posted = 0;
    size_t ended = 0;
    std::shared_ptr<const models::Ranker> ranker;
    bool as_chances = true;
    ipc::EmbedReply reply;
    std::optional<Error> error;
  };
  void post_more(Job& job);
  std::optional<Outcome> end_if_all_have(uint64_t number);
  std::optional<Outcome> end_one(engine::RequestId id, std::optional<Error> error);

  Mailbox<engine::EngineCommand>& commands_;
  const std::string model_;
  std::map<uint64_t, Job> jobs_;
};

}  // namespace hearth::worker
