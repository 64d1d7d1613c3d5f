#pragma once
// Whether somebody listens at a unix socket, asked of the kernel: no answer of theirs is waited
// for.

#include <filesystem>

#include "ipc/wire/socket.h"
#include "kernels/base/result.h"

namespace hearth::ipc {

/// Who listens at `socket` (the process that called listen). kUnavailable with the system's reason
/// where nobody does: no such file, or left over from a process that ended. kForbidden where this
/// process may not ask, with the group that may.
Result<PeerCredentials> probe_listener(const std::filesystem::path& socket);

}  // namespace hearth::ipc
