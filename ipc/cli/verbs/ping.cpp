// hearth ping: whether a daemon answers.

#include <fmt/core.h>

#include <chrono>
#include <thread>

#include "ipc/cli/connect/connection.h"
#include "ipc/cli/terminal/terminal.h"
#include "ipc/cli/verbs/verbs.h"

namespace hearth::cli {
namespace {

std::optional<ipc::Client> connect_within(int wait_ms) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::milliseconds(wait_ms);
  while (std::chrono::steady_clock::now() < give_up) {
    Result<ipc::Client> client = ipc::Client::connect();
    if (client.ok()) return std::move(client).value();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return connect();
}

}  // namespace

int ping(bool json, int wait_ms) {
  std::optional<ipc::Client> client = connect_within(wait_ms);
  if (!client) return kNoDaemon;
  const auto start = std::chrono::steady_clock::now();
  return show(client->ping(), json, [&](const ipc::PongReply& pong) {
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    write_stdout(terminal_safe(
        fmt::format("hearthd {} in {}: pid {}, up {}, instance {}{}, {:.2f} ms\n", pong.version,
                    client->runtime_dir().string(), pong.pid, human_duration(pong.uptime_ms),
                    pong.instance, pong.draining ? ", draining" : "", took.count())));
  });
}

}  // namespace hearth::cli
