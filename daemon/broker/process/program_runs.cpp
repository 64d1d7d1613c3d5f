#include "daemon/broker/process/program_runs.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <utility>

#include "daemon/broker/process/child_process.h"
#include "kernels/base/log.h"

namespace hearth::broker {
namespace asio = boost::asio;

struct ProgramRuns::Run {
  Run(asio::io_context& io, int read_fd, ChildProcess started, Then on_end)
      : output(io, read_fd), timer(io), child(std::move(started)), then(std::move(on_end)) {}
  asio::posix::stream_descriptor output;
  asio::steady_timer timer;
  ChildProcess child;
  Then then;
  std::array<char, 16384> piece{};
  std::string text;
};

ProgramRuns::ProgramRuns(asio::io_context& io, Bounds bounds) : io_(io), bounds_(bounds) {}

ProgramRuns::~ProgramRuns() = default;

Result<void> ProgramRuns::start(const std::vector<std::string>& argv, Then then) {
  if (running_.size() >= bounds_.runs) {
    return Error::busy("as many programs as may run at once are running");
  }
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return Error::io("pipe");
  Result<ChildProcess> child = ChildProcess::start(argv, fds[1]);
  ::close(fds[1]);
  if (!child.ok()) {
    ::close(fds[0]);
    return child.take_error();
  }
  const uint64_t number = next_number_++;
  Run& run = *(running_[number] =
                   std::make_unique<Run>(io_, fds[0], std::move(child).value(), std::move(then)));
  run.timer.expires_after(bounds_.time);
  run.timer.async_wait([this, number](const boost::system::error_code& error) {
    if (!error) end(number, "took too long");
  });
  read(number);
  return {};
}

// A run may end while its handler is queued, so handlers look it up by number instead of keeping it
// alive.
void ProgramRuns::read(uint64_t number) {
  Run& run = *running_.at(number);
  run.output.async_read_some(
      asio::buffer(run.piece),
      [this, number](const boost::system::error_code& error, size_t bytes) {
        if (error == asio::error::operation_aborted || !running_.contains(number)) return;
        if (error) return end(number, nullptr);  // its output is closed, so it has ended
        Run& read_from = *running_.at(number);
        read_from.text.append(read_from.piece.data(), bytes);
        if (read_from.text.size() > bounds_.output_bytes) return end(number, "too much output");
        read(number);
      });
}

void ProgramRuns::end(uint64_t number, const char* problem) {
  const auto at = running_.find(number);
  if (at == running_.end()) return;
  const std::unique_ptr<Run> ended = std::move(at->second);
  running_.erase(at);
  if (problem != nullptr) {
    log_warn("program_run", "problem=\"{}\"", problem);
    return ended->then(Error::unavailable(problem));
  }
  const bool ok = ended->child.reap() == "exit status 0";
  ended->then(Ended{ok, std::move(ended->text)});
}

}  // namespace hearth::broker
