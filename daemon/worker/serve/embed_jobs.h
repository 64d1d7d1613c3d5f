#pragma once
// Requests for vectors: each text of one is a request of its own to the engine, so that texts of
// several requests share its steps. Not all are posted at once: the engine's queue is for
// everybody. Owned by the front door.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/request.h"
#include "ipc/schema/replies.h"
#include "kernels/base/mailbox.h"
#include "kernels/base/result.h"

namespace hearth::worker {

/// A request's texts, ready for the engine; ids and times are filled in by EmbedJobs.
struct PreparedEmbed {
  std::vector<engine::Request> texts;
};

class EmbedJobs {
 public:
  EmbedJobs(Mailbox<engine::EngineCommand>& commands, std::string model)
      : commands_(commands), model_(std::move(model)) {}

  /// A request that has ended with this.
  struct Outcome {
    uint64_t number = 0;
    Result<ipc::EmbedReply> reply;
  };
  /// Something: the engine takes none of its texts, and it has ended.
  std::optional<Outcome> begin(uint64_t number, int64_t received_us, PreparedEmbed prepared);
  /// Its answer is kCancelled once what runs of it has ended.
  void cancel(uint64_t number);

  /// Whether the engine's request is one of ours.
  static bool owns(engine::RequestId id) { return id >> 63 != 0; }
  /// What the engine says of one of ours.
  std::optional<Outcome> take(const engine::EmbeddingEvent& event);
  std::optional<Outcome> take(const engine::RequestDoneEvent& event);
  std::optional<Outcome> take(const engine::RequestFailedEvent& event);

 private:
  struct Job {
    std::vector<engine::Request> texts;  ///< their prompts go to the engine
    size_t posted = 0;
    size_t ended = 0;
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
