#include "ipc/cli/connect/connection.h"

#include <fmt/core.h>

#include <cstdlib>

#include "ipc/cli/connect/daemon_start.h"
#include "ipc/cli/terminal/interrupt.h"
#include "ipc/cli/terminal/terminal.h"

namespace hearth::cli {

std::optional<ipc::Client> connect() {
  Result<ipc::Client> client = ipc::Client::connect();
  if (client.ok()) return std::move(client).value();
  complain(client.error().message);
  const char* elsewhere = std::getenv("HEARTH_TCP");
  if (elsewhere == nullptr || *elsewhere == '\0') complain("hearth start starts one");
  return std::nullopt;
}

std::optional<ipc::Client> connect_or_start(bool no_start, bool allow_root) {
  // A daemon at a TCP address cannot be started from here.
  const char* elsewhere = std::getenv("HEARTH_TCP");
  if (no_start || (elsewhere != nullptr && *elsewhere != '\0')) return connect();
  Result<ipc::Client> client = ipc::Client::connect();
  if (client.ok()) return std::move(client).value();
  Result<ipc::Client> started = start_daemon(allow_root);
  if (started.ok()) return std::move(started).value();
  complain(client.error().message);
  complain(started.error().message);
  return std::nullopt;
}

int fail(const Error& error) {
  complain(fmt::format("{} [{}]", error.message, name(error.code)));
  return error.code == ErrorCode::kLost ? kNoDaemon : kFailed;
}

}  // namespace hearth::cli
