#pragma once
// Connects to the daemon and reports failures.

#include <optional>

#include "ipc/cli/exit_code.h"
#include "ipc/cli/terminal/terminal.h"
#include "ipc/client/client.h"
#include "ipc/wire/codec.h"
#include "kernels/base/result.h"

namespace hearth::cli {

/// A connected client, or nothing after printing the reason; the exit status is then kNoDaemon.
std::optional<ipc::Client> connect();
/// The same, but starts the user's own daemon if none answers.
/// As root only where `allow_root`, or HEARTH_ALLOW_ROOT=1 in the environment, insists.
std::optional<ipc::Client> connect_or_start(bool no_start, bool allow_root = false);

/// Prints the error and returns its exit status.
int fail(const Error& error);

/// Prints `reply` with `print` or as one JSON line, or prints the error; returns the exit status.
template <class Reply, class Print>
int show(const Result<Reply>& reply, bool json, Print print) {
  if (!reply.ok()) return fail(reply.error());
  if (json) {
    write_stdout(ipc::encode_event(*reply) + "\n");
  } else {
    print(*reply);
  }
  return kOk;
}

}  // namespace hearth::cli
