#pragma once
// A Unix socket that speaks ZMTP: accepts connections, asks the kernel who each one is, and bounds
// what any user may take: connections, bytes being received, bytes that wait to be read. Running
// out of descriptors is survived. Owned by the io thread.

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "daemon/broker/transport/connection.h"
#include "ipc/wire/socket.h"
#include "kernels/base/clock.h"
#include "kernels/base/result.h"

namespace hearth::broker {

/// What a server tells its owner, from the loop. Any of them may call the server.
struct TransportHandlers {
  std::function<void(const TransportPeer& peer, zmtp::Message message)> on_message{};
  std::function<void(const TransportPeer& peer, bool on, std::string_view topic)> on_subscription{};
  /// A send() to this connection was refused, and would not be now.
  std::function<void(const TransportPeer& peer)> on_writable{};
  /// Of a connection whose handshake was done: it has ended.
  std::function<void(const TransportPeer& peer)> on_gone{};
};

class TransportServer {
 public:
  /// Binds `path`, mode 0660, in place of whatever socket lies there. kInvalidArgument: the path is
  /// too long for a socket; kIo with the system's reason.
  static Result<std::unique_ptr<TransportServer>> open(
      boost::asio::io_context& io, const Clock& clock, const std::filesystem::path& path,
      SocketKind kind, const TransportLimits& limits, TransportHandlers handlers);
  virtual ~TransportServer() = default;

  /// kWouldBlock: the connection has enough to read; keep the message, on_writable follows.
  /// kUnreachable: there is no such connection (any more).
  virtual ipc::SendOutcome send(uint64_t number, std::span<const std::string_view> frames) = 0;
  /// Nothing more is read from it until release() was called as often. No-ops once it is gone.
  virtual void hold(uint64_t number) = 0;
  virtual void release(uint64_t number) = 0;
  /// Deadlines. Call a few times a second.
  virtual void tick() = 0;
  /// Everything that was sent was taken by the system.
  virtual bool idle() const = 0;

  virtual size_t num_connections() const = 0;
  virtual uint64_t num_refused() const = 0;
};

/// How many connections `wanted` become where the process may have so many descriptors: each
/// takes one, and `others` stay free for files, workers and other sockets.
size_t bounded_connections(size_t wanted, size_t others);

}  // namespace hearth::broker
