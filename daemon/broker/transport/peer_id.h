#pragma once
// The broker's name for a connection. Each door (api.sock, TCP, HTTP) numbers its own connections
// and adds its own tag, so a number of one door never reaches a connection of another. No part of
// it comes from a client.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "kernels/base/numbers.h"

namespace hearth::broker {

enum class Door : uint8_t {
  kNone,  ///< no connection: work of the daemon itself
  kIpc,   ///< api.sock
  kTcp,   ///< ZeroMQ over TCP with CURVE
  kHttp,  ///< one exchange over HTTP
};

struct PeerId {
  Door door = Door::kNone;
  uint32_t uid = 0;     ///< the connection's user
  uint64_t number = 0;  ///< of that door's connection; never reused

  auto operator<=>(const PeerId&) const = default;
};

struct PeerIdHash {
  size_t operator()(const PeerId& id) const {
    return std::hash<uint64_t>()(id.number * 4 + to_underlying(id.door));
  }
};

}  // namespace hearth::broker
