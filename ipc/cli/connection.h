#pragma once
// Reaching the daemon, and what is said when that fails.

#include <optional>

#include "ipc/cli/options.h"
#include "ipc/cli/terminal.h"
#include "ipc/client/client.h"
#include "ipc/wire/codec.h"
#include "kernels/base/result.h"

namespace hearth::cli {

/// A connected client, or nothing after the reason was printed: the status is then kNoDaemon.
std::optional<ipc::Client> connect();
/// The same, starting a daemon of the user's own where none answers.
/// As root only where `allow_root`, or HEARTH_ALLOW_ROOT=1 in the environment, insists.
std::optional<ipc::Client> connect_or_start(bool no_start, bool allow_root = false);

/// Prints the error and returns the status that belongs to it.
int fail(const Error& error);

/// Prints `reply` with `print`, or as one JSON line, or the error; returns the status.
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
