#pragma once
// What the broker and its workers say to each other beside what clients are sent.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "ipc/schema/requests.h"
#include "ipc/schema/sampling.h"
#include "ipc/schema/worker_stats.h"
#include "kernels/base/result.h"

namespace hearth::ipc {

/// What the broker adds to a request before a worker sees it.
struct WorkerRequest {
  uint64_t id = 0;                           ///< the frame in front; not in the JSON
  Verb verb = Verb::kGenerate;               ///< kGenerate, kTokenize or kEmbed
  std::string owner;                         ///< "uid:1000"
  int64_t received_ms_ago = 0;               ///< spent in the broker already
  GenerateRequest generate;                  ///< verb kGenerate; its seed is set
  TokenizeRequest tokenize;                  ///< verb kTokenize
  EmbedRequest embed;                        ///< verb kEmbed
  std::vector<std::vector<int32_t>> resume;  ///< per sample, tokens already sent
  /// A fork: tokens behind the prompt, and the live request (0: none any more) whose sample has
  /// computed them.
  std::vector<int32_t> prefix;
  uint64_t fork_of = 0;
  int32_t fork_sample = 0;
};

/// Broker -> worker, "control". `kCancel` concerns the request of the number in front; the others
/// have number 0.
enum class WorkerControl {
  kCancel,
  kDrain,  ///< admit nothing more, end the live requests, then say stopped
  kStop,   ///< end now
};

// Worker -> broker, "event" with number 0.

/// The first message of a worker.
struct WorkerHello {
  int32_t pid = 0;
  std::string version;  ///< must equal the broker's
  std::string device;   ///< "cpu", "cuda:0"
  bool operator==(const WorkerHello&) const = default;
};
/// Before any weight is in memory: what will be.
struct WorkerPlan {
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;
  uint64_t other_bytes = 0;  ///< activations, logits, index, a device's driver
  /// Free on a device with memory of its own before any of it is taken; 0: it is the host's memory.
  uint64_t device_free_bytes = 0;
  uint64_t host_bytes =
      0;  ///< of a worker on such a device: what it may come to take of the host's
  bool operator==(const WorkerPlan&) const = default;
};
struct WorkerLoadProgress {
  uint64_t bytes_done = 0;
  uint64_t bytes_total = 0;
  std::string stage = "reading";  ///< or "warming_up"
  bool operator==(const WorkerLoadProgress&) const = default;
};
/// Serves from here on.
struct WorkerReady {
  std::string model;
  std::string architecture;
  std::string title;
  std::string file_type;
  std::string fingerprint;
  std::string device;  ///< with the path chosen: "cpu avx512-vnni"
  int32_t context_length = 0;
  int32_t vocab_size = 0;
  uint64_t num_parameters = 0;
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;
  int64_t load_ms = 0;
  std::string draft;  ///< the model that guesses for it; "": none
  SamplingDefaults sampling{};
  ExpertUse experts{};
  bool chat_template = false;  ///< its file has one
  bool operator==(const WorkerReady&) const = default;
};
/// Cannot serve; the worker ends after it.
struct WorkerFailed {
  Error error;
};
/// A sign of life of the engine thread, a few times a second.
struct WorkerHeartbeat {
  WorkerSnapshot snapshot;
  bool operator==(const WorkerHeartbeat&) const = default;
};
/// Drained; the worker ends after it.
struct WorkerStopped {
  bool operator==(const WorkerStopped&) const = default;
};
using WorkerEvent = std::variant<WorkerHello, WorkerLoadProgress, WorkerReady, WorkerFailed,
                                 WorkerHeartbeat, WorkerStopped, WorkerPlan>;

}  // namespace hearth::ipc
