#pragma once
// Clients over TCP with CURVE keys. A relay bounds what unauthenticated peers may cost and connects
// them to a private Unix socket, on which libzmq serves them. Owned by the io thread.

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "daemon/broker/config/config.h"
#include "daemon/broker/transport/curve_gate.h"
#include "daemon/broker/transport/tcp_relay.h"
#include "daemon/broker/transport/zmq_on_asio.h"
#include "daemon/broker/transport/zmtp.h"
#include "ipc/wire/socket.h"
#include "kernels/base/clock.h"
#include "kernels/base/result.h"

namespace hearth::broker {

class TcpDoor {
 public:
  struct Handlers {
    std::function<void(uint64_t number, uint32_t uid, zmtp::Message message)> on_message{};
    std::function<void(uint64_t number, uint32_t uid)> on_gone{};
  };

  /// `inner`: a path for a Unix socket, in a directory that other users cannot enter. An error is
  /// the reason why the daemon cannot start.
  static Result<std::unique_ptr<TcpDoor>> open(boost::asio::io_context& io, const Clock& clock,
                                               const ServerConfig& config,
                                               int64_t max_message_bytes,
                                               const std::filesystem::path& inner,
                                               Handlers handlers);

  /// kWouldBlock: nothing signals that there is room again, so retry on a timer.
  ipc::SendOutcome send(uint64_t number, std::span<const std::string_view> frames);
  /// Reads the file's keys again, for later connections.
  Result<void> read_clients(const std::filesystem::path& file);
  void tick() { relay_->tick(); }

 private:
  struct Known {
    std::string routing_id;  ///< libzmq's name for the connection
    uint32_t uid = 0;
  };

  explicit TcpDoor(ipc::Context context, Handlers handlers)
      : context_(std::move(context)), handlers_(std::move(handlers)) {}
  void on_message(ipc::Message& message, bool whole);
  uint64_t number_of(std::string_view routing_id, uint32_t uid);
  void forget(uint64_t number);

  ipc::Context context_;
  Handlers handlers_;
  std::unique_ptr<CurveGate> gate_;
  std::unique_ptr<ZmqOnAsio> socket_;
  std::unique_ptr<TcpRelay> relay_;
  std::map<uint64_t, Known> known_;
  std::map<std::string, uint64_t, std::less<>> numbers_;  // by routing id
  uint64_t last_number_ = 0;
  uint64_t num_refused_ = 0;
};

}  // namespace hearth::broker
