#pragma once
// Stands between clients on TCP and libzmq, which decrypts CURVE on a private Unix socket: what a
// client may cost is bounded here, before libzmq sees it. A connection gets a place, passes the few
// hundred bytes of a handshake and must have ended it in time; then bytes go both ways. libzmq
// keeps a message in memory until its last frame has come, without a bound, so the relay counts the
// bytes that a connection has sent since a message of it was delivered: beyond a bound it is not
// read, and if no message is delivered then, the connection ends. An address whose keys were
// refused waits longer each time. Owned by the io thread.

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
  size_t handshake_bytes = 4096;  ///< of a client, before its key was admitted
  int64_t handshake_timeout_us = 5'000'000;
  size_t connections_per_user = 16;     ///< of one user, known by the key
  size_t undelivered_bytes = 34 << 20;  ///< of one connection: a whole message must fit
  size_t undelivered_per_address = 42 << 20;
  size_t undelivered_total = 136 << 20;  ///< of all connections
  int64_t undelivered_timeout_us = 5'000'000;
};

class TcpRelay {
 public:
  /// Listens on `address` ("127.0.0.1:7117", "[::1]:7117") and connects each client to `inner`.
  /// kInvalidArgument: no such address; kIo with the system's reason.
  static Result<std::unique_ptr<TcpRelay>> open(boost::asio::io_context& io, const Clock& clock,
                                                const std::string& address,
                                                std::filesystem::path inner,
                                                const RelayLimits& limits = {});
  virtual ~TcpRelay() = default;

  /// Deadlines. Call a few times a second.
  virtual void tick() = 0;
  /// A whole message of a user has come out of the inner socket whose other end has this name; see
  /// peer_name().
  virtual void delivered(std::string_view name, uint32_t uid) = 0;
  virtual size_t num_connections() const = 0;
  virtual uint16_t port() const = 0;
};

/// The name of the socket that `fd` is connected to; empty for an unnamed one and for anything
/// else.
std::string peer_name(int fd);

/// Follows what a CURVE server says to a client, to see whether the client's key was admitted
/// (ZeroMQ RFC 26: greeting, WELCOME, then READY). Pure.
class CurveHandshake {
 public:
  void push(std::string_view bytes);
  bool admitted() const { return admitted_; }

 private:
  std::string bytes_;  // of the server, until it is decided; bounded by kMostBytes
  bool admitted_ = false;
};

}  // namespace hearth::broker
