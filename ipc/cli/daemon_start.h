#pragma once
// Starting hearthd for a user who has none running.

#include "ipc/client/client.h"
#include "kernels/base/result.h"

namespace hearth::cli {

/// Starts hearthd, detached from this terminal, with its output in hearthd.log in the state
/// directory, and waits until it answers: at most 10 s. Says on stderr what it does. kUnavailable
/// with the reason: no program found, it ended (the last line of its log), it does not answer; for
/// a service's user: that systemctl is the one to start it; for root, unless `allow_root` or
/// HEARTH_ALLOW_ROOT=1 insists: what to do instead.
Result<ipc::Client> start_daemon(bool allow_root);

}  // namespace hearth::cli
