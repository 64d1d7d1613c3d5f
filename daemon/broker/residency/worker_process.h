#pragma once
// One worker: its process, its socket, and its latest reports. Owned by the io thread.

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/broker/config/config.h"
#include "daemon/broker/process/child_process.h"
#include "daemon/broker/residency/worker.h"
#include "daemon/broker/residency/worker_socket.h"
#include "ipc/schema/worker_messages.h"
#include "kernels/base/clock.h"
#include "kernels/base/result.h"

namespace hearth::broker {

/// Resolves `worker.device` to "cpu" or "cuda:N", given whether hearth-worker-cuda is installed and
/// an NVIDIA driver is loaded. Only auto is ever replaced; if a requested device is missing, the
/// worker reports the error.
std::string choose_device(const std::string& wanted, bool cuda_worker, bool nvidia_driver);
/// The same for this machine; `worker.device` unchanged if a program is configured.
std::string device_of_worker(const WorkerConfig& config);

/// The worker program: the configured one, or hearth-worker-<device> next to this program, in
/// ../libexec/hearth, or on PATH. kNotFound lists the places searched.
Result<std::filesystem::path> find_worker_program(const WorkerConfig& config);

/// Arguments of `program` to serve `model` over `socket`.
std::vector<std::string> worker_arguments(const std::filesystem::path& program,
                                          const std::filesystem::path& model,
                                          const std::filesystem::path& socket,
                                          const ipc::ServeSettings& settings);

class WorkerProcess final : public Worker, private WorkerSocket::Reader {
 public:
  struct Setup {
    std::string model;
    uint64_t number = 0;  ///< of all workers started
    std::vector<std::string> argv;
    std::filesystem::path socket;  ///< bound by the broker before the process starts
    int64_t heartbeat_timeout_ms = 0;
    int64_t load_timeout_ms = 0;
  };
  /// Receivers of what the worker sends; they outlive it.
  struct Receivers {
    WorkerListener& lifecycle;
    AnswerSink& answers;
    WatchSink& watch;
    KvEventSink* kv_events = nullptr;  ///< null: workers report none
  };
  static Result<std::unique_ptr<WorkerProcess>> start(boost::asio::io_context& io,
                                                      const Clock& clock, const Setup& setup,
                                                      const Receivers& receivers);
  ~WorkerProcess() override;

  void send_request(uint64_t number, std::string json) override;
  void send_cancel(uint64_t number) override;
  void send_end_reasoning(uint64_t number) override;
  void send_kv_bound(uint64_t bytes) override;
  void send_drop_adapter(const std::string& name) override;
  void sleep() override;
  void wake() override;
  void drain() override;
  void stop() override;
  void kill(const std::string& why) override;
  void watch(bool on) override;
  void check_timeouts() override;

 private:
  WorkerProcess(boost::asio::io_context& io, const Clock& clock, const Setup& setup,
                ChildProcess child, std::unique_ptr<WorkerSocket> socket,
                const Receivers& receivers);
  void on_message(const ipc::PipeMessage& message) override;
  void on_broken(const std::string& why) override;
  void on_answers(std::string_view answers);
  void on_event(const ipc::WorkerEvent& event);
  void on_hello(const ipc::WorkerHello& hello);
  void watch_exit();
  void on_exit();
  void send(uint64_t number, ipc::PipeKind kind, std::string bytes);
  void send_control(uint64_t number, ipc::WorkerControl control);

  const Clock& clock_;
  Setup setup_;
  const Receivers receivers_;
  ChildProcess child_;
  std::unique_ptr<WorkerSocket> socket_;
  boost::asio::posix::stream_descriptor exit_watch_;
  std::string kill_reason_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace hearth::broker
