#pragma once
// The broker's name for a connection that asks and is answered. Each door (api.sock, TCP, HTTP)
// numbers its own connections and writes its own tag, so a number of one door never reaches a
// connection of another. Nothing in it comes from a client.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace hearth::broker {

enum class Door : uint8_t {
  kNone,  ///< nobody: what the daemon does for itself
  kIpc,   ///< api.sock
  kTcp,   ///< ZeroMQ over TCP with CURVE
  kHttp,  ///< one exchange over HTTP
};

struct PeerId {
  Door door = Door::kNone;
  uint32_t uid = 0;     ///< whom the connection belongs to
  uint64_t number = 0;  ///< of that door's connections; never used twice

  auto operator<=>(const PeerId&) const = default;
};

struct PeerIdHash {
  size_t operator()(const PeerId& id) const {
    return std::hash<uint64_t>()(id.number * 4 + static_cast<uint64_t>(id.door));
  }
};

}  // namespace hearth::broker
