#pragma once
// Asks the kernel whether a process listens on a Unix socket, without waiting for its answer.

#include <filesystem>

#include "ipc/wire/socket.h"
#include "kernels/base/result.h"

namespace hearth::ipc {

/// The process that called listen() on `socket`. kUnavailable with the system's reason if none
/// does: the file is absent, or its process has ended. kForbidden if this process may not connect;
/// the message names the group that may.
Result<PeerCredentials> probe_listener(const std::filesystem::path& socket);

}  // namespace hearth::ipc
