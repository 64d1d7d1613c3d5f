#pragma once
// Stands between clients on TCP and libzmq, which decrypts CURVE on a private Unix socket: what a
// client without an admitted key may cost is bounded here, before libzmq sees it. A connection gets
// a place, passes the few hundred bytes of a handshake and must have ended it in time; then bytes
// go both ways as they come. An address whose keys were refused waits longer each time. Owned by
// the io thread.

#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "kernels/base/clock.h"
#include "kernels/base/result.h"

namespace hearth::broker {

struct RelayLimits {
  size_t connections = 64;
  size_t connections_per_address = 16;
  size_t handshake_bytes = 4096;  ///< of a client, before its key was admitted
  int64_t handshake_timeout_us = 5'000'000;
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
  virtual size_t num_connections() const = 0;
  virtual uint16_t port() const = 0;
};

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
