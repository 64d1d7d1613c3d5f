#include "daemon/broker/residency/worker_process.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>

#include "ipc/schema/version.h"
#include "ipc/wire/frames.h"
#include "ipc/wire/worker_codec.h"
#include "kernels/base/log.h"
#include "kernels/base/match.h"

namespace hearth::broker {
namespace fs = std::filesystem;
namespace {

std::string program_name(std::string_view device) {
  return device.starts_with("cuda") ? "hearth-worker-cuda" : "hearth-worker-cpu";
}

std::vector<fs::path> program_dirs() {
  const fs::path here = program_dir();
  std::vector<fs::path> dirs = {here, (here / "../libexec/hearth").lexically_normal()};
  std::stringstream path(std::getenv("PATH") == nullptr ? "" : std::getenv("PATH"));
  for (std::string dir; std::getline(path, dir, ':');) {
    if (dir.starts_with('/')) dirs.emplace_back(dir);
  }
  return dirs;
}

fs::path find_in(const std::vector<fs::path>& dirs, const std::string& name) {
  for (const fs::path& dir : dirs) {
    if (::access((dir / name).c_str(), X_OK) == 0) return dir / name;
  }
  return {};
}

/// The driver's control node, or that of a virtual machine that shares its host's GPU (WSL 2).
bool nvidia_driver_loaded() {
  return ::access("/dev/nvidiactl", F_OK) == 0 || ::access("/dev/dxg", F_OK) == 0;
}

}  // namespace

std::string choose_device(const std::string& wanted, bool cuda_worker, bool nvidia_driver) {
  if (wanted != "auto") return wanted;
  return cuda_worker && nvidia_driver ? "cuda:0" : "cpu";
}

std::string device_of_worker(const WorkerConfig& config) {
  if (!config.program.empty()) return config.device;
  return choose_device(config.device, !find_in(program_dirs(), program_name("cuda")).empty(),
                       nvidia_driver_loaded());
}

Result<fs::path> find_worker_program(const WorkerConfig& config) {
  if (!config.program.empty()) {
    if (::access(config.program.c_str(), X_OK) == 0) return config.program;
    return Error::not_found(
        fmt::format("worker.program {}: not an executable file", config.program.string()));
  }
  const std::vector<fs::path> dirs = program_dirs();
  const std::string name = program_name(device_of_worker(config));
  fs::path found = find_in(dirs, name);
  if (!found.empty()) return found;
  return Error::not_found(
      fmt::format("no {} in {}, {} or on PATH", name, dirs[0].string(), dirs[1].string()));
}

std::vector<std::string> worker_arguments(const fs::path& program, const fs::path& model,
                                          const fs::path& socket,
                                          const ipc::ServeSettings& settings) {
  return {program.string(), "serve",        "--socket",   socket.string(),
          "--model",        model.string(), "--settings", ipc::encode_serve_settings(settings)};
}

Result<std::unique_ptr<WorkerProcess>> WorkerProcess::start(boost::asio::io_context& io,
                                                            const Clock& clock, const Setup& setup,
                                                            const Receivers& receivers) {
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<WorkerSocket> socket,
                          WorkerSocket::listen(io, setup.socket));
  HEARTH_ASSIGN_OR_RETURN(ChildProcess child, ChildProcess::start(setup.argv));
  std::unique_ptr<WorkerProcess> worker(
      new WorkerProcess(io, clock, setup, std::move(child), std::move(socket), receivers));
  worker->socket_->start(worker->pid_, *worker);
  return worker;
}

WorkerProcess::WorkerProcess(boost::asio::io_context& io, const Clock& clock, const Setup& setup,
                             ChildProcess child, std::unique_ptr<WorkerSocket> socket,
                             const Receivers& receivers)
    : clock_(clock),
      setup_(setup),
      receivers_(receivers),
      child_(std::move(child)),
      socket_(std::move(socket)),
      exit_watch_(io, child_.pidfd()) {
  pid_ = child_.pid();
  started_us_ = last_sign_us_ = clock.now_us();
  watch_exit();
}

// A wake-up is only a hint that the process may have ended; treating it as the end could block in
// waitpid.
void WorkerProcess::watch_exit() {
  exit_watch_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                         [this, alive = alive_](const boost::system::error_code& error) {
                           if (!*alive || error) return;
                           child_.has_ended() ? on_exit() : watch_exit();
                         });
}

WorkerProcess::~WorkerProcess() {
  *alive_ = false;
  if (exit_watch_.is_open()) exit_watch_.release();  // child_ owns the pidfd
  std::error_code ignored;
  fs::remove(setup_.socket, ignored);
}

void WorkerProcess::on_exit() {
  // Its last messages (an error, tokens) may still be in the socket.
  socket_->drain();
  exit_watch_.release();  // before the pidfd is closed
  std::string how = child_.reap();
  if (!kill_reason_.empty()) how = fmt::format("killed: {}", kill_reason_);
  state_ = State::kEnding;
  if (receivers_.kv_events != nullptr) {
    receivers_.kv_events->on_kv_gone(setup_.model, setup_.number);
  }
  receivers_.lifecycle.on_worker_ended(*this, how);
}

void WorkerProcess::on_message(const ipc::PipeMessage& message) {
  switch (message.kind) {
    case ipc::PipeKind::kAnswers: return on_answers(message.bytes);
    case ipc::PipeKind::kWatch: return receivers_.watch.on_watch(setup_.model, message.bytes);
    case ipc::PipeKind::kKvEvents:
      if (receivers_.kv_events != nullptr) {
        receivers_.kv_events->on_kv_events(setup_.model, setup_.number, message.bytes);
      }
      return;
    case ipc::PipeKind::kEvent: {
      const Result<ipc::WorkerEvent> event = ipc::decode_worker_event(message.bytes);
      if (!event) return on_broken(event.error().message);
      return on_event(*event);
    }
    case ipc::PipeKind::kRequest:
    case ipc::PipeKind::kDropAdapter:
    case ipc::PipeKind::kControl: return on_broken("sent what only a broker sends");
  }
}

void WorkerProcess::on_broken(const std::string& why) {
  kill(fmt::format("broke the protocol: {}", why));
}

void WorkerProcess::on_answers(std::string_view answers) {
  const std::shared_ptr<bool> alive = alive_;
  const int64_t read_us = clock_.now_us();
  while (!answers.empty() && *alive) {
    const Result<ipc::NumberedAnswer> next = ipc::take_answer(&answers);
    if (!next) return on_broken(next.error().message);
    receivers_.answers.on_answer(setup_.model, next->number, next->answer, read_us);
  }
}

void WorkerProcess::on_event(const ipc::WorkerEvent& event) {
  last_sign_us_ = clock_.now_us();
  match(
      event, [this](const ipc::WorkerHello& hello) { on_hello(hello); },
      [this](const ipc::WorkerLoadProgress& progress) { progress_ = progress; },
      [this](const ipc::WorkerPlan& plan) {
        if (state_ != State::kStarting) return;
        plan_ = plan;
        receivers_.lifecycle.on_worker_plan(*this);
      },
      [this](const ipc::WorkerReady& ready) {
        if (state_ != State::kStarting) return;  // too late: it is already being stopped
        ready_ = ready;
        state_ = State::kReady;
        receivers_.lifecycle.on_worker_ready(*this);
      },
      [this](const ipc::WorkerFailed& failed) {
        failure_ = failed.error;
        state_ = State::kEnding;
        // The worker waits for this so that its error is read before it exits.
        send_control(0, ipc::WorkerControl::kStop);
      },
      [this](const ipc::WorkerHeartbeat& heartbeat) {
        snapshot_ = heartbeat.snapshot;
        if (snapshot_.kv_short) receivers_.lifecycle.on_worker_short(*this);
      },
      [this](const ipc::WorkerStopped&) {
        said_stopped_ = true;
        state_ = State::kEnding;
        send_control(0, ipc::WorkerControl::kStop);
      },
      [this](const ipc::WorkerAsleep& asleep) {
        if (state_ != State::kSettling) return;  // asked to leave meanwhile
        put_off_bytes_ = asleep.put_off_bytes;
        state_ = State::kAsleep;
        receivers_.lifecycle.on_worker_asleep(*this);
      });
}

void WorkerProcess::on_hello(const ipc::WorkerHello& hello) {
  if (hello.version == ipc::version()) return;
  failure_ = Error::unsupported(fmt::format("{} is of version {}, this daemon of {}",
                                            setup_.argv.front(), hello.version, ipc::version()));
  kill("another version");
}

void WorkerProcess::send(uint64_t number, ipc::PipeKind kind, std::string bytes) {
  // If it is gone, the end of its process or its silence is detected elsewhere.
  if (!socket_->send(kind, number, std::move(bytes))) log_debug("worker_gone", "pid={}", pid_);
}

void WorkerProcess::send_request(uint64_t number, std::string json) {
  send(number, ipc::PipeKind::kRequest, std::move(json));
}

void WorkerProcess::send_control(uint64_t number, ipc::WorkerControl control) {
  send(number, ipc::PipeKind::kControl, ipc::encode_worker_control(control));
}

void WorkerProcess::send_cancel(uint64_t number) {
  send_control(number, ipc::WorkerControl::kCancel);
}

void WorkerProcess::send_end_reasoning(uint64_t number) {
  send_control(number, ipc::WorkerControl::kEndReasoning);
}

void WorkerProcess::send_kv_bound(uint64_t bytes) {
  send_control(bytes, ipc::WorkerControl::kKvBound);
}

void WorkerProcess::send_drop_adapter(const std::string& name) {
  send(0, ipc::PipeKind::kDropAdapter, name);
}

void WorkerProcess::sleep() {
  if (state_ != State::kReady) return;
  state_ = State::kSettling;
  send_control(0, ipc::WorkerControl::kSleep);
}

void WorkerProcess::wake() {
  if (state_ != State::kAsleep) return;
  state_ = State::kReady;
  send_control(0, ipc::WorkerControl::kWake);
}

void WorkerProcess::drain() {
  if (state_ == State::kStarting) {
    said_stopped_ = true;  // it has no requests to finish
    return kill("not needed any more");
  }
  if (state_ != State::kReady && state_ != State::kSettling && state_ != State::kAsleep) return;
  state_ = State::kDraining;
  send_control(0, ipc::WorkerControl::kDrain);
}

void WorkerProcess::stop() {
  if (state_ == State::kStarting) return drain();
  said_stopped_ = true;
  kill("stopped");
}

void WorkerProcess::watch(bool on) {
  if (state_ == State::kStarting || state_ == State::kEnding) return;
  watched_ = on;
  send(0, ipc::PipeKind::kWatch, on ? "1" : "0");
}

void WorkerProcess::kill(const std::string& why) {
  if (kill_reason_.empty()) {
    kill_reason_ = why;
    log_warn("worker_killed", "pid={} why=\"{}\"", pid_, why);
  }
  state_ = State::kEnding;
  child_.signal(SIGKILL);
}

void WorkerProcess::check_timeouts() {
  if (!kill_reason_.empty()) return;
  const int64_t silent_ms = (clock_.now_us() - last_sign_us_) / 1000;
  const bool loading = state_ == State::kStarting;
  const int64_t limit_ms = loading ? setup_.load_timeout_ms : setup_.heartbeat_timeout_ms;
  if (silent_ms > limit_ms) {
    kill(fmt::format("no sign of life for {} ms{}", silent_ms, loading ? " while loading" : ""));
  }
}

}  // namespace hearth::broker
