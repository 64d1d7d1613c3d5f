#pragma once
// A thread that decodes and prepares requests, so that neither delays a stream. The front door has
// two, one for short and one for long requests, because decoding JSON and rendering a template
// cannot be interrupted.

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "daemon/worker/serve/prep.h"
#include "kernels/base/mailbox.h"

namespace hearth::worker {

struct EngineLoaded;

/// The facts about a loaded model that preparing needs. Each thread has its own, because compiled
/// constraints are not shared.
PrepModel prep_model(const EngineLoaded& loaded);

/// Requests up to this size are short: they take at most a few milliseconds each.
inline constexpr size_t kShortRequestBytes = 64 << 10;

/// The fields of a request that the front door needs.
struct Asked {
  size_t n = 1;
  uint64_t seed = 0;
  std::vector<std::string> stop;
  std::vector<std::vector<int32_t>> resume;  ///< per sample, tokens that the client already has
  int64_t deadline_ms = 0;
  int64_t received_ms_ago = 0;  ///< age of the request when the broker sent it
};

/// An encoded reply, because writing a long one takes time too.
struct EncodedReply {
  std::string json;
};

struct PrepAnswer {
  uint64_t number = 0;
  Asked asked;
  std::variant<PreparedRequest, PreparedEmbed, EncodedReply, Error> outcome;
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
  /// Answers; the fd wakes the reader. Owners take turns, and each owner's requests stay in order.
  /// While a long text is tokenized, much shorter requests of other owners are served in between,
  /// one after each slice.
  Mailbox<PrepAnswer>& answers() { return answers_; }

 private:
  struct Stop {};
  struct Job {
    uint64_t number = 0;
    std::string json;
    size_t bytes = 0;
  };
  class Turn;

  void run();
  void collect(std::chrono::microseconds timeout);
  std::optional<std::pair<std::string, Job>> take_next();
  std::optional<std::pair<std::string, Job>> take_shorter(const std::string& than_of, size_t bytes);
  std::pair<std::string, Job> take_front(const std::string& owner);
  void serve(const std::string& owner, Job job, int depth);

  const PrepModel model_;
  Mailbox<std::variant<Job, Stop>> inbox_;
  Mailbox<PrepAnswer> answers_;
  // Used only by this thread.
  std::map<std::string, std::deque<Job>> waiting_;  // by owner; no list is empty
  std::string last_owner_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace hearth::worker
