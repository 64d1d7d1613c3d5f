#pragma once
// Which user is at the other end of a connection, as the kernel says.

#include <cstdint>
#include <optional>

namespace hearth::http {

/// Of a Unix socket.
std::optional<uint32_t> unix_peer_uid(int fd);

/// Of a TCP connection within this machine: the owner of the socket at the other end, asked of the
/// kernel's table of sockets (sock_diag(7)). Nothing where there is no such socket, or more than a
/// moment would be waited for.
std::optional<uint32_t> tcp_peer_uid(int fd);

}  // namespace hearth::http
