// hearth stop: asks the user's own daemon to end. It admits no new requests, finishes the live ones
// and exits.

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "ipc/cli/connect/connection.h"
#include "ipc/cli/terminal/interrupt.h"
#include "ipc/cli/terminal/terminal.h"
#include "ipc/cli/verbs/verbs.h"
#include "ipc/files/paths.h"
#include "ipc/wire/probe.h"

namespace hearth::cli {
namespace {

/// hearthd gives live requests 30 s by default.
constexpr auto kStopPatience = std::chrono::seconds(40);

/// A zombie has ended, even if its parent never reaps it, as in some containers.
bool alive(pid_t pid) {
  std::ifstream in(fmt::format("/proc/{}/stat", pid));
  std::string line;
  if (!std::getline(in, line)) return false;
  const size_t name_end = line.rfind(") ");
  return name_end == std::string::npos || line[name_end + 2] != 'Z';
}

}  // namespace

int stop() {
  std::optional<ipc::Client> client = connect();
  if (!client) return kNoDaemon;
  // The process to signal comes from the kernel, not from the daemon's own answer.
  const auto listener = ipc::probe_listener(ipc::api_socket(client->runtime_dir()));
  if (!listener.ok()) return fail(listener.error());
  if (listener->uid != ::geteuid()) {
    complain(fmt::format("the daemon belongs to uid {}: not yours to stop", listener->uid));
    return kFailed;
  }
  if (listener->pid != client->daemon().pid) {
    complain(fmt::format("pid {} listens, but the daemon reports pid {}: not stopping either",
                         listener->pid, client->daemon().pid));
    return kFailed;
  }
  if (::kill(listener->pid, SIGTERM) != 0) {
    complain(fmt::format("pid {}: {}", listener->pid, std::strerror(errno)));
    return kFailed;
  }
  client.reset();
  catch_interrupts();
  StatusLine status;
  const auto start = std::chrono::steady_clock::now();
  while (alive(listener->pid)) {
    const auto waited = std::chrono::steady_clock::now() - start;
    if (interrupted()) return kInterrupted;
    if (waited > kStopPatience) {
      status.clear();
      complain(fmt::format("pid {} has not ended yet", listener->pid));
      return kFailed;
    }
    if (waited > std::chrono::milliseconds(300)) {
      status.show(fmt::format("waiting for pid {} to finish its requests", listener->pid));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  status.clear();
  write_stdout(fmt::format("stopped (pid {})\n", listener->pid));
  return kOk;
}

}  // namespace hearth::cli
