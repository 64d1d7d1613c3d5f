#pragma once
// The broker's view of a worker: its state and the requests it accepts, whether it is a process or
// a test double. Owned by the io thread.

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ipc/schema/worker_messages.h"
#include "ipc/wire/frames.h"
#include "kernels/base/numbers.h"
#include "kernels/base/result.h"

namespace hearth::broker {

class Worker;

/// Receives what happens to a worker, on the io thread.
class WorkerListener {
 public:
  virtual ~WorkerListener() = default;
  /// Called before it takes memory: see plan().
  virtual void on_worker_plan(Worker& worker) = 0;
  virtual void on_worker_ready(Worker& worker) = 0;
  /// Its requests wait for KV blocks beyond its bound: see send_kv_bound().
  virtual void on_worker_short(Worker& worker) = 0;
  /// It has given back memory as sleep() asked.
  virtual void on_worker_asleep(Worker& worker) = 0;
  /// The process has ended. This is the last call; the listener may destroy the worker in it.
  virtual void on_worker_ended(Worker& worker, const std::string& how) = 0;
};

/// Receives the answers of workers, on the io thread, straight from their sockets.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  /// The worker of `model` answers request `number`. `read_us`: when the answer was read.
  virtual void on_answer(const std::string& model, uint64_t number, const ipc::Answer& answer,
                         int64_t read_us) = 0;
};

/// Receives the engine updates of watched workers, on the io thread.
class WatchSink {
 public:
  virtual ~WatchSink() = default;
  /// An encoded WatchUpdate of the worker of `model`; only after Worker::watch(true).
  virtual void on_watch(const std::string& model, std::string_view update) = 0;
};

/// Receives the KV events of workers (docs/kv-events.md), on the io thread.
class KvEventSink {
 public:
  virtual ~KvEventSink() = default;
  /// Events of the worker of `model`, as a msgpack array. `number` is the worker's: later workers
  /// have higher ones.
  virtual void on_kv_events(const std::string& model, uint64_t number, std::string_view events) = 0;
  /// The worker has ended.
  virtual void on_kv_gone(const std::string& model, uint64_t number) = 0;
};

class Worker {
 public:
  enum class State {
    kStarting,  ///< from fork to `ready`
    kReady,
    kDraining,  ///< takes no new requests
    kSettling,  ///< the same, and sleeps once its requests have ended
    kAsleep,    ///< holds little memory until wake()
    kEnding,    ///< killed or failed; only its end is awaited
  };

  virtual ~Worker() = default;

  State state() const { return state_; }
  bool is_ready() const { return state_ == State::kReady; }
  bool is_asleep() const { return state_ == State::kAsleep; }
  /// It takes no requests until it sleeps or has ended.
  bool is_leaving() const {
    return state_ == State::kDraining || state_ == State::kSettling || state_ == State::kEnding;
  }
  pid_t pid() const { return pid_; }
  int64_t starting_since_us() const { return started_us_; }
  int64_t last_sign_us() const { return last_sign_us_; }
  /// The memory it will take, known once it has read the file's header; null before.
  const ipc::WorkerPlan* plan() const { return plan_ ? &*plan_ : nullptr; }
  /// Loading progress; null before the first report.
  const ipc::WorkerLoadProgress* progress() const { return progress_ ? &*progress_ : nullptr; }
  double load_share() const;  ///< of the weights, 0 to 1
  /// The content of `ready`; null before.
  const ipc::WorkerReady* facts() const { return ready_ ? &*ready_ : nullptr; }
  /// Of its plan's weights, what it does not hold because it sleeps.
  uint64_t put_off_bytes() const { return is_asleep() ? put_off_bytes_ : 0; }
  const ipc::WorkerSnapshot& snapshot() const { return snapshot_; }
  /// Why it cannot serve, if it reported that itself.
  const std::optional<Error>& failure() const { return failure_; }
  /// It ended as requested, so its exit is not a death.
  bool said_stopped() const { return said_stopped_; }

  virtual void send_request(uint64_t number, std::string json) = 0;
  virtual void send_cancel(uint64_t number) = 0;
  virtual void send_end_reasoning(uint64_t number) = 0;
  /// Memory that may back its KV pools from now on. What prefixes use beyond it is given back at
  /// once, what requests use as they end.
  virtual void send_kv_bound(uint64_t bytes) = 0;
  /// It removes the adapter if no request uses it.
  virtual void send_drop_adapter(const std::string& name) = 0;
  /// A ready worker finishes its live requests and sleeps.
  virtual void sleep() = 0;
  /// A worker that sleeps is ready again.
  virtual void wake() = 0;
  /// It finishes its live requests and exits. A worker that is still starting is stopped at once.
  virtual void drain() = 0;
  /// It ends at once; its requests go to another worker.
  virtual void stop() = 0;
  virtual void kill(const std::string& why) = 0;
  /// Turns its engine updates on or off; true again: from the beginning.
  virtual void watch(bool on) = 0;
  bool watched() const { return watched_; }
  /// Kills it if it has been silent for too long.
  virtual void check_timeouts() = 0;

 protected:
  State state_ = State::kStarting;
  pid_t pid_ = 0;
  int64_t started_us_ = 0;
  int64_t last_sign_us_ = 0;
  std::optional<ipc::WorkerPlan> plan_;
  std::optional<ipc::WorkerLoadProgress> progress_;
  std::optional<ipc::WorkerReady> ready_;
  ipc::WorkerSnapshot snapshot_;
  uint64_t put_off_bytes_ = 0;
  std::optional<Error> failure_;
  bool said_stopped_ = false;
  bool watched_ = false;
};

inline double Worker::load_share() const {
  if (ready_) return 1;
  if (!progress_ || progress_->bytes_total == 0) return 0;
  return as_double(progress_->bytes_done) / as_double(progress_->bytes_total);
}

}  // namespace hearth::broker
