#pragma once
// Decides which clients may connect over TCP: answers libzmq's ZAP requests (ZeroMQ RFC 27) about
// each client's public key before any of the client's data is read. Owned by the io thread.

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "daemon/broker/transport/zmq_on_asio.h"
#include "ipc/wire/socket.h"
#include "kernels/base/result.h"

namespace hearth::broker {

class CurveGate {
 public:
  /// One per context; open it before the context's sockets are bound. `clients`: public key -> user
  /// id.
  static Result<std::unique_ptr<CurveGate>> open(boost::asio::io_context& io,
                                                 const ipc::Context& context,
                                                 std::map<std::string, uint32_t> clients);
  /// Applies to later connections.
  void set_clients(std::map<std::string, uint32_t> clients) { clients_ = std::move(clients); }

 private:
  explicit CurveGate(std::map<std::string, uint32_t> clients) : clients_(std::move(clients)) {}
  void on_question(const ipc::Message& question);

  std::map<std::string, uint32_t> clients_;
  std::unique_ptr<ZmqOnAsio> socket_;
};

}  // namespace hearth::broker
