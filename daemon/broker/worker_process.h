#pragma once
// One worker: its process, its socket, and what it said about itself. Owned by the io thread.

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/broker/child_process.h"
#include "daemon/broker/config.h"
#include "daemon/broker/zmq_on_asio.h"
#include "ipc/frames.h"
#include "ipc/messages.h"
#include "kernels/base/clock.h"
#include "kernels/base/result.h"

namespace hearth::broker {

class WorkerProcess;

/// What a worker process tells its owner, on the io thread.
class WorkerListener {
 public:
  virtual ~WorkerListener() = default;
  virtual void on_worker_ready(WorkerProcess& worker) = 0;
  /// Loading went on, or a heartbeat came: see load_share() and snapshot().
  virtual void on_worker_news(WorkerProcess& worker) = 0;
  /// An answer to request `number`.
  virtual void on_worker_answer(WorkerProcess& worker, uint64_t number,
                                const ipc::Answer& answer) = 0;
  /// The process has ended; the last call, and the listener may destroy the worker in it.
  virtual void on_worker_ended(WorkerProcess& worker, const std::string& how) = 0;
};

/// The program a worker is: the configured one, or hearth-worker-cpu beside this program, in
/// ../libexec/hearth, or on PATH. kNotFound lists where it was looked for.
Result<std::filesystem::path> find_worker_program(const WorkerConfig& config);

/// Arguments of `program` for serving `model` over `socket`; prefixes are kept below `state_dir`,
/// nowhere where it is empty.
std::vector<std::string> worker_arguments(const std::filesystem::path& program,
                                          const WorkerConfig& config,
                                          const std::filesystem::path& model,
                                          const std::filesystem::path& socket,
                                          const std::filesystem::path& state_dir,
                                          LogLevel log_level);

class WorkerProcess {
 public:
  enum class State {
    kStarting,  ///< from fork to `ready`
    kReady,
    kDraining,  ///< takes nothing new
    kEnding,    ///< killed or failed; only its end is awaited
  };

  struct Setup {
    std::vector<std::string> argv;
    std::filesystem::path socket;  ///< bound by us, before the process starts
    int64_t heartbeat_timeout_ms = 0;
    int64_t load_timeout_ms = 0;
  };
  static Result<std::unique_ptr<WorkerProcess>> start(boost::asio::io_context& io,
                                                      const ipc::Context& context,
                                                      const Clock& clock, const Setup& setup,
                                                      WorkerListener& listener);
  ~WorkerProcess();

  State state() const { return state_; }
  pid_t pid() const { return pid_; }
  bool is_ready() const { return state_ == State::kReady; }
  double load_share() const { return load_share_; }  ///< of the weights, 0 to 1
  int64_t starting_since_us() const { return started_us_; }
  int64_t last_sign_us() const { return last_sign_us_; }
  /// What `ready` said; null before.
  const ipc::WorkerReady* facts() const { return ready_ ? &*ready_ : nullptr; }
  const ipc::WorkerSnapshot& snapshot() const { return snapshot_; }
  /// Why it cannot serve, where it said so itself.
  const std::optional<Error>& failure() const { return failure_; }
  /// It ended its requests as asked; its exit is no death.
  bool said_stopped() const { return said_stopped_; }

  void send_request(uint64_t number, const std::string& json);
  void send_cancel(uint64_t number);
  /// It ends its live requests and exits by itself.
  void drain();
  void kill(const std::string& why);

  /// Kills it when it has given no sign of life for too long.
  void check_timeouts();

 private:
  WorkerProcess(boost::asio::io_context& io, const Clock& clock, const Setup& setup,
                ChildProcess child, WorkerListener& listener);
  void on_message(ipc::Message& message, bool ok);
  void on_event(const ipc::WorkerEvent& event);
  void watch_exit();
  void on_exit();
  void send(uint64_t number, std::string_view kind, const std::string& json);
  void send_control(uint64_t number, ipc::WorkerControl control);

  const Clock& clock_;
  Setup setup_;
  WorkerListener& listener_;
  ChildProcess child_;
  pid_t pid_;
  std::unique_ptr<ZmqOnAsio> socket_;
  boost::asio::posix::stream_descriptor exit_watch_;
  State state_ = State::kStarting;
  int64_t started_us_;
  int64_t last_sign_us_;
  double load_share_ = 0;
  std::optional<ipc::WorkerReady> ready_;
  ipc::WorkerSnapshot snapshot_;
  std::optional<Error> failure_;
  bool said_stopped_ = false;
  std::string kill_reason_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace hearth::broker
