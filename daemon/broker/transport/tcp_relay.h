#pragma once
// Relays between clients on TCP and libzmq, which decrypts CURVE on a private Unix socket, and
// bounds what a client may cost before libzmq sees it. A connection gets a place, may send the few
// hundred bytes of a handshake, and must complete it in time; then bytes are relayed both ways.
// libzmq keeps a message in memory until its last frame has arrived, without a bound. So the relay
// counts the bytes a connection has sent since its last delivered message: beyond a bound it stops
// reading, and if no message is delivered then, the connection ends. An address whose keys were
// refused must wait, longer each time. Owned by the io thread.

#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "kernels/base/clock.h"
#include "kernels/base/result.h"

namespace hearth::broker {

struct RelayLimits {
  size_t connections = 64;
  size_t connections_per_address = 16;
  size_t handshake_bytes = 4096;  ///< from a client, before its key was admitted
  int64_t handshake_timeout_us = 5'000'000;
  size_t connections_per_user = 16;     ///< of one user, identified by the key
  size_t undelivered_bytes = 34 << 20;  ///< of one connection: a whole message must fit
  size_t undelivered_per_address = 42 << 20;
  size_t undelivered_total = 136 << 20;  ///< of all connections
  int64_t undelivered_timeout_us = 5'000'000;
};

class TcpRelay {
 public:
  /// Listens on `address` ("127.0.0.1:7117", "[::1]:7117") and connects each client to `inner`.
  /// kInvalidArgument: not a valid address; kIo with the system's reason.
  static Result<std::unique_ptr<TcpRelay>> open(boost::asio::io_context& io, const Clock& clock,
                                                const std::string& address,
                                                std::filesystem::path inner,
                                                const RelayLimits& limits = {});
  virtual ~TcpRelay() = default;

  /// Checks deadlines. Call a few times a second.
  virtual void tick() = 0;
  /// A whole message of a user has arrived through the inner socket whose other end has this name;
  /// see peer_name().
  virtual void delivered(std::string_view name, uint32_t uid) = 0;
  virtual size_t num_connections() const = 0;
  virtual uint16_t port() const = 0;
};

/// The name of the socket that `fd` is connected to; empty if it has none or `fd` is not such a
/// socket.
std::string peer_name(int fd);

/// Follows the bytes of a CURVE server to find out whether the client's key was admitted (ZeroMQ
/// RFC 26: greeting, WELCOME, then READY). Pure.
class CurveHandshake {
 public:
  void push(std::string_view bytes);
  bool admitted() const { return admitted_; }

 private:
  std::string bytes_;  // from the server, until decided; at most kMostBytes
  bool admitted_ = false;
};

}  // namespace hearth::broker
