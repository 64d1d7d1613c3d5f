#pragma once
// A Unix socket, or a TCP socket of this machine, that speaks ZMTP: obtains each peer's credentials
// from the kernel, and bounds what one user may take: connections, bytes in reception, unread
// bytes, and the loop's time. Owned by the io thread.

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "daemon/broker/process/acceptor.h"
#include "daemon/broker/process/loop_shares.h"
#include "daemon/broker/transport/connection.h"
#include "ipc/wire/socket.h"
#include "kernels/base/clock.h"
#include "kernels/base/result.h"

namespace hearth::broker {

/// Callbacks of a server, from the loop. Each may call the server.
struct TransportHandlers {
  std::function<void(const TransportPeer& peer, zmtp::Message message)> on_message{};
  std::function<void(const TransportPeer& peer, bool on, std::string_view topic)> on_subscription{};
  /// A send() to this connection was refused; there is room now.
  std::function<void(const TransportPeer& peer)> on_writable{};
  /// A connection whose handshake was complete has ended.
  std::function<void(const TransportPeer& peer)> on_gone{};
};

/// Where a server listens over TCP.
struct TcpAddress {
  std::string name;  ///< for messages
  std::string address;
  uint16_t port = 0;
  Acceptor::NameUser name_user = nullptr;
};

class TransportServer {
 public:
  /// Binds `path`, mode 0660, and replaces an existing socket. kInvalidArgument: the path is too
  /// long for a socket; kIo with the system's reason.
  static Result<std::unique_ptr<TransportServer>> open(
      boost::asio::io_context& io, const Clock& clock, Acceptor& acceptor, LoopShares& shares,
      const std::filesystem::path& path, SocketKind kind, const TransportLimits& limits,
      TransportHandlers handlers);
  /// Binds a literal address and port; 0: the system chooses the port. `name_user` determines the
  /// user of a connection; one without is refused. Its credentials have no group and no process.
  /// kInvalidArgument: not an address; kIo with the system's reason.
  static Result<std::unique_ptr<TransportServer>> open_tcp(
      boost::asio::io_context& io, const Clock& clock, Acceptor& acceptor, LoopShares& shares,
      const TcpAddress& address, SocketKind kind, const TransportLimits& limits,
      TransportHandlers handlers);
  virtual ~TransportServer() = default;

  /// kWouldBlock: too many bytes are unsent; keep the message, on_writable follows. kUnreachable:
  /// the connection is closed.
  virtual ipc::SendOutcome send(uint64_t number, std::span<const std::string_view> frames) = 0;
  /// Stops reading from it until release() has been called as many times. No effect once it is
  /// closed.
  virtual void hold(uint64_t number) = 0;
  virtual void release(uint64_t number) = 0;
  /// Checks deadlines. Call a few times a second.
  virtual void tick() = 0;
  /// The system has taken everything that was sent.
  virtual bool idle() const = 0;

  virtual uint16_t port() const = 0;  ///< 0: a Unix socket
  virtual size_t num_connections() const = 0;
  virtual uint64_t num_refused() const = 0;
};

/// Reduces `wanted` connections to what the process's descriptor limit permits: each takes one, and
/// `others` stay free for files, workers and other sockets.
size_t bounded_connections(size_t wanted, size_t others);

}  // namespace hearth::broker
