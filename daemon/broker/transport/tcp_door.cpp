#include "daemon/broker/transport/tcp_door.h"

#include <utility>

#include "ipc/files/paths.h"
#include "ipc/wire/curve.h"
#include "kernels/base/log.h"

namespace hearth::broker {
namespace {

constexpr int kHighWater = 64;
// A ROUTER does not report disconnects, so a bounded number of connections is remembered.
constexpr size_t kMaxKnown = 1024;
// A zero byte and four more: the routing id that a ROUTER gives to a connection that chose none.
constexpr size_t kGeneratedBytes = 5;

}  // namespace

Result<std::unique_ptr<TcpDoor>> TcpDoor::open(boost::asio::io_context& io, const Clock& clock,
                                               const ServerConfig& config,
                                               int64_t max_message_bytes,
                                               const std::filesystem::path& inner,
                                               Handlers handlers) {
  if (config.tcp_secret_file.empty() || config.tcp_clients_file.empty()) {
    return Error::invalid(
        "server.tcp: want server.tcp_secret_file (hearth keygen) and "
        "server.tcp_clients_file, too: no client connects without a key",
        "server");
  }
  HEARTH_ASSIGN_OR_RETURN(const ipc::CurveKeys keys, ipc::read_secret_key(config.tcp_secret_file));
  HEARTH_ASSIGN_OR_RETURN(auto clients, ipc::read_client_keys(config.tcp_clients_file));
  HEARTH_ASSIGN_OR_RETURN(ipc::Context context, ipc::Context::create());
  std::unique_ptr<TcpDoor> door(new TcpDoor(std::move(context), std::move(handlers)));
  HEARTH_ASSIGN_OR_RETURN(door->gate_, CurveGate::open(io, door->context_, std::move(clients)));
  const ipc::SocketOptions options{
      .send_high_water = kHighWater,
      .receive_high_water = kHighWater,
      // A larger frame ends the connection, so leave room to answer with the reason.
      .max_frame_bytes = max_message_bytes + (1 << 20),
      .reconnect = true,
      .routing_id = {}};
  HEARTH_ASSIGN_OR_RETURN(ipc::Socket socket,
                          ipc::Socket::open(door->context_, ipc::SocketType::kRouter, options));
  HEARTH_TRY(ipc::serve_curve(socket, keys));
  HEARTH_ASSIGN_OR_RETURN(const std::string endpoint, ipc::ipc_endpoint(inner));
  HEARTH_TRY(socket.bind(endpoint));
  TcpDoor* raw = door.get();
  door->socket_ = std::make_unique<ZmqOnAsio>(
      io, std::move(socket),
      [raw](ipc::Message& message, bool whole) { raw->on_message(message, whole); });
  const size_t message_bytes = max_message_bytes;
  const RelayLimits limits{.undelivered_bytes = message_bytes + (2 << 20),
                           .undelivered_per_address = message_bytes + (10 << 20),
                           .undelivered_total = 4 * message_bytes + (8 << 20)};
  HEARTH_ASSIGN_OR_RETURN(door->relay_, TcpRelay::open(io, clock, config.tcp, inner, limits));
  log_info("listening", "tcp={} public_key={}", config.tcp, keys.public_key);
  return door;
}

Result<void> TcpDoor::read_clients(const std::filesystem::path& file) {
  HEARTH_ASSIGN_OR_RETURN(auto clients, ipc::read_client_keys(file));
  gate_->set_clients(std::move(clients));
  return {};
}

void TcpDoor::on_message(ipc::Message& message, bool whole) {
  const std::string_view routing_id = message.empty() ? "" : message.front().view();
  const std::optional<uint32_t> uid =
      message.size() < 2 ? std::nullopt : ipc::authenticated_uid(message[1]);
  // A client that chose its own routing id gets no answer, because the answer could reach another
  // client.
  if (!uid || routing_id.size() != kGeneratedBytes || routing_id.front() != '\0') {
    log_debug("tcp_refused", "count={}", ++num_refused_);
    if (uid) relay_->delivered(peer_name(ipc::source_descriptor(message[1])), *uid);
    return;
  }
  relay_->delivered(peer_name(ipc::source_descriptor(message[1])), *uid);
  zmtp::Message out;
  for (size_t i = 1; i < message.size(); ++i) {
    out.num_bytes += message[i].view().size();
    out.frames.emplace_back(message[i].view());
  }
  out.num_frames = message.size() - 1;
  out.whole = whole;
  handlers_.on_message(number_of(routing_id, *uid), *uid, std::move(out));
}

uint64_t TcpDoor::number_of(std::string_view routing_id, uint32_t uid) {
  const auto found = numbers_.find(routing_id);
  if (found != numbers_.end()) {
    const uint64_t number = found->second;
    if (known_.at(number).uid == uid) return number;
    forget(number);  // the name belongs to another user now
  }
  if (known_.size() >= kMaxKnown) forget(known_.begin()->first);
  const uint64_t number = ++last_number_;
  known_.emplace(number, Known{std::string(routing_id), uid});
  numbers_[std::string(routing_id)] = number;
  return number;
}

void TcpDoor::forget(uint64_t number) {
  const auto found = known_.find(number);
  if (found == known_.end()) return;
  const uint32_t uid = found->second.uid;
  numbers_.erase(found->second.routing_id);
  known_.erase(found);
  handlers_.on_gone(number, uid);
}

ipc::SendOutcome TcpDoor::send(uint64_t number, std::span<const std::string_view> frames) {
  const auto found = known_.find(number);
  if (found == known_.end()) return ipc::SendOutcome::kUnreachable;
  ipc::Message message;
  ipc::append(message, found->second.routing_id);
  for (const std::string_view frame : frames) ipc::append(message, frame);
  const ipc::SendOutcome outcome = socket_->send(message);
  if (outcome == ipc::SendOutcome::kUnreachable) {
    numbers_.erase(found->second.routing_id);
    known_.erase(found);  // the caller handles kUnreachable
  }
  return outcome;
}

}  // namespace hearth::broker
