#pragma once
// Starts hearthd for a user without a running daemon.

#include <sys/types.h>

#include <filesystem>

#include "ipc/client/client.h"
#include "kernels/base/result.h"

namespace hearth::cli {

/// Starts hearthd, detached from this terminal, with its output in hearthd.log in the state
/// directory, and waits at most 10 s until it answers. Reports on stderr what it does. kUnavailable
/// with the reason: no program found; it exited (the last line of its log); it does not answer; the
/// user is the service's and should use systemctl; the user is root and neither `allow_root` nor
/// HEARTH_ALLOW_ROOT=1 is set.
Result<ipc::Client> start_daemon(bool allow_root);

/// Waits until the process `pid`, a hearthd with its output in `log`, answers. kUnavailable: it has
/// ended (and was waited for), or does not answer within 10 s.
Result<ipc::Client> wait_for_daemon(pid_t pid, const ipc::ClientOptions& options,
                                    const std::filesystem::path& log);

}  // namespace hearth::cli
