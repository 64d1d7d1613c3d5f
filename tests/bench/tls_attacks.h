#pragma once
// Attacks on the door for TLS of the HTTP server. Each runs in a process of its own and does not
// return. `runtime`: the daemon's directory, next to which write_tls_door() left the port.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace hearth::bench {

/// Writes certificate, keys and the port to the folder that contains `runtime`, and returns the
/// settings of a daemon with that door.
std::vector<std::string> write_tls_door(const std::filesystem::path& runtime, uint16_t port);
/// 0: the daemon of this directory has none that is known.
uint16_t tls_port(const std::filesystem::path& runtime);

[[noreturn]] void half_handshakes(const std::filesystem::path& runtime);
[[noreturn]] void handshakes(const std::filesystem::path& runtime);
[[noreturn]] void unread_tls(const std::filesystem::path& runtime);

}  // namespace hearth::bench
