#pragma once
// Determines the user at the other end of a connection, from the kernel.

#include <cstdint>
#include <optional>

namespace hearth::http {

/// For a Unix socket.
std::optional<uint32_t> unix_peer_uid(int fd);

/// For a TCP connection within this machine: the owner of the socket at the other end, from the
/// kernel's socket table (sock_diag(7)). Nothing if the socket is gone or the kernel does not
/// answer promptly.
std::optional<uint32_t> tcp_peer_uid(int fd);

}  // namespace hearth::http
