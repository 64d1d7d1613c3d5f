#pragma once
// Determines the user at the other end of a connection, from the kernel.

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>

namespace hearth::http {

/// For a Unix socket.
std::optional<uint32_t> unix_peer_uid(int fd);

/// For a TCP connection within this machine: the owner of the socket at the other end, from the
/// kernel's socket table (sock_diag(7)). Nothing if the socket is gone or the kernel does not
/// answer promptly.
std::optional<uint32_t> tcp_peer_uid(int fd);

/// For a listener that other machines reach: as tcp_peer_uid() for a connection within this
/// machine. Another machine counts as a user of its own, by a number above those of users that
/// depends on its address (IPv6: the first 64 bits) and on a number of this process: there are few
/// enough to keep account of, and a machine cannot choose to share one with another.
std::optional<uint32_t> network_peer_uid(int fd);
/// The same for an address.
uint32_t network_peer_number(const sockaddr_storage& address);
/// In canonical form (guard.h); "": not one of IP.
std::string peer_address(int fd);

}  // namespace hearth::http
