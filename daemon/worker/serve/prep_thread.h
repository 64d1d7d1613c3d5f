#pragma once
// A thread that decodes and prepares requests and encodes the log probabilities of prompts, so that
// none of them delays a stream. The front door has two, because decoding JSON and rendering a
// template cannot be interrupted: one for short requests that become a stream, and one of low
// priority for long ones and for those that only ask for tokens.

#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "daemon/worker/serve/prep.h"
#include "kernels/base/mailbox.h"
#include "kernels/base/turns.h"

namespace hearth::worker {

struct EngineLoaded;

/// The facts about a loaded model that preparing needs. Each thread has its own, because compiled
/// constraints are not shared. `tool_form`: see ipc::EngineSettings.
PrepModel prep_model(const EngineLoaded& loaded, const std::string& tool_form = "template");

/// Requests up to this size are short: they take at most a few milliseconds each.
inline constexpr size_t kShortRequestBytes = 64 << 10;

/// The fields of a request that the front door needs.
struct Asked {
  std::string owner;
  size_t n = 1;
  uint64_t seed = 0;
  std::vector<std::string> stop;
  std::vector<std::vector<int32_t>> resume;  ///< per sample, tokens that the client already has
  int64_t deadline_ms = 0;
  int64_t received_ms_ago = 0;  ///< age of the request when the broker sent it
};

/// The log probabilities of a prompt, to be encoded.
struct PromptLogprobs {
  std::vector<int32_t> prompt;
  engine::PromptLogprobsEvent event;
};
struct EncodedPromptLogprobs {
  std::string json;
};

/// An encoded reply, because writing a long one takes time too.
struct EncodedReply {
  std::string json;
};

struct PrepAnswer {
  uint64_t number = 0;
  Asked asked;
  std::variant<PreparedRequest, PreparedEmbed, EncodedReply, EncodedPromptLogprobs, Error> outcome;
};

class PrepThread {
 public:
  enum class Priority { kNormal, kLow };

  explicit PrepThread(PrepModel model, Priority priority = Priority::kNormal);
  ~PrepThread();  // joins; unprepared requests are dropped
  PrepThread(const PrepThread&) = delete;
  PrepThread& operator=(const PrepThread&) = delete;

  /// A request in the format of ipc::encode_worker_request(). The broker bounds the number of
  /// requests and their bytes.
  void post(uint64_t number, std::string json);
  /// `bytes`: about the length of what it becomes.
  void post(uint64_t number, const std::string& owner, size_t bytes, PromptLogprobs logprobs);
  /// Answers; the fd wakes the reader. Owners take turns, and each owner's requests stay in order.
  /// While a long text is tokenized, or long log probabilities are encoded, much shorter requests
  /// of other owners are served in between, one after each slice.
  Mailbox<PrepAnswer>& answers() { return answers_; }

 private:
  struct Stop {};
  struct Job {
    uint64_t number = 0;
    std::string owner;
    size_t bytes = 0;
    std::variant<std::string, PromptLogprobs> work;  ///< the JSON of a request
  };
  class Turn;

  void run();
  void collect(std::chrono::microseconds timeout);
  void serve(const std::string& owner, Job job, int depth);

  const PrepModel model_;
  Mailbox<std::variant<Job, Stop>> inbox_;
  Mailbox<PrepAnswer> answers_;
  // Used only by this thread.
  Turns<std::string, Job> waiting_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace hearth::worker
