#pragma once
// Messages between the broker and its workers, apart from what is passed on to clients.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "ipc/schema/requests.h"
#include "ipc/schema/sampling.h"
#include "ipc/schema/worker_stats.h"
#include "kernels/base/result.h"

namespace hearth::ipc {

/// What the broker adds to a client's request.
struct WorkerEnvelope {
  uint64_t id = 0;                           ///< the number frame; not in the JSON
  std::string owner;                         ///< "uid:1000"
  int64_t received_ms_ago = 0;               ///< time already spent in the broker
  std::vector<std::vector<int32_t>> resume;  ///< per sample, tokens already sent
  /// A fork: the tokens after the prompt, and the live request (0: it has ended) whose sample
  /// computed them.
  std::vector<int32_t> prefix;
  uint64_t fork_of = 0;
  int32_t fork_sample = 0;
  bool end_reasoning = false;              ///< its client asked for that
  std::vector<std::string> adapter_paths;  ///< files of GenerateRequest::adapter, in order
};

/// A request as a worker receives it. The seed of a generate request is set.
struct WorkerRequest : WorkerEnvelope {
  ComputeRequest task;

  GenerateRequest& generate() { return std::get<GenerateRequest>(task); }
  const GenerateRequest& generate() const { return std::get<GenerateRequest>(task); }
};

/// Broker -> worker, "control". The first two are about the request whose number precedes them;
/// that of kKvBound is its bytes, and the others have number 0.
enum class WorkerControl {
  kCancel,
  kEndReasoning,
  kDrain,    ///< admit nothing more, finish the live requests, then send WorkerStopped
  kStop,     ///< exit now
  kKvBound,  ///< memory that may back the KV pools from now on
  kSleep,    ///< finish the live requests, give back memory, then send WorkerAsleep
  kWake,     ///< requests follow
};

// Worker -> broker, "event" with number 0.

/// The first message of a worker.
struct WorkerHello {
  int32_t pid = 0;
  std::string version;  ///< must equal the broker's
  std::string device;   ///< "cpu", "cuda:0"
  bool operator==(const WorkerHello&) const = default;
};
/// Memory that the worker will take, sent before it loads any weight.
struct WorkerPlan {
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;
  uint64_t other_bytes = 0;  ///< activations, logits, index, a device's driver
  /// Free on a device with its own memory before any is taken; 0: the device uses host memory.
  uint64_t device_free_bytes = 0;
  uint64_t host_bytes = 0;  ///< on such a device: host memory that the worker may take later
  /// Of kv_bytes, what is taken at start or always may be; the rest is taken within the bound.
  uint64_t kv_floor_bytes = 0;
  std::vector<StageUse> stages{};  ///< of a model in stages; their sums are the bytes above
  bool operator==(const WorkerPlan&) const = default;
};
struct WorkerLoadProgress {
  uint64_t bytes_done = 0;
  uint64_t bytes_total = 0;
  std::string stage = "reading";  ///< or "warming_up"
  bool operator==(const WorkerLoadProgress&) const = default;
};
/// The worker serves requests from now on.
struct WorkerReady {
  std::string model;
  std::string architecture;
  std::string title;
  std::string file_type;
  std::string fingerprint;
  std::string device;  ///< with the code path: "cpu avx512-vnni"
  int32_t context_length = 0;
  int32_t vocab_size = 0;
  uint64_t num_parameters = 0;
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;
  int64_t load_ms = 0;
  std::string draft;  ///< its draft model; "": none
  SamplingDefaults sampling{};
  ExpertUse experts{};
  bool chat_template = false;  ///< its file has a chat template
  // 0: no layer keeps KV.
  int32_t block_size = 0;  ///< tokens of a KV block
  int32_t num_blocks = 0;  ///< of the layers that keep a whole context, or the longest window
  bool can_sleep = false;
  bool operator==(const WorkerReady&) const = default;
};
/// The worker cannot serve and exits after this.
struct WorkerFailed {
  Error error;
};
/// Sent by the engine thread a few times a second.
struct WorkerHeartbeat {
  WorkerSnapshot snapshot;
  bool operator==(const WorkerHeartbeat&) const = default;
};
/// The worker is drained and exits after this.
struct WorkerStopped {
  bool operator==(const WorkerStopped&) const = default;
};
/// It has given back packed weights, and waits for kWake.
struct WorkerAsleep {
  uint64_t put_off_bytes = 0;  ///< of WorkerPlan::weight_bytes
  bool operator==(const WorkerAsleep&) const = default;
};
using WorkerEvent = std::variant<WorkerHello, WorkerLoadProgress, WorkerReady, WorkerFailed,
                                 WorkerHeartbeat, WorkerStopped, WorkerPlan, WorkerAsleep>;

/// Facts from the head of a model file, which is not loaded for them: the last line that
/// `hearth-worker-<device> describe FILE` prints.
struct FileFacts {
  std::string architecture;
  std::string file_type;  ///< dominant weight type, e.g. "Q8_0"
  uint64_t num_parameters = 0;
  int32_t context_length = 0;  ///< from the file; 0: this build refuses the file
  SamplingSettings sampling{};
  bool chat_template = false;
  std::vector<std::string> abilities{};  ///< see ModelEntry
  bool operator==(const FileFacts&) const = default;
};

}  // namespace hearth::ipc
