#include "daemon/broker/transport/curve_gate.h"

#include <fmt/core.h>

#include "ipc/wire/curve.h"
#include "kernels/base/log.h"

namespace hearth::broker {
namespace {

// Frames of a ZAP request: version, request id, domain, address, routing id, mechanism, key.
constexpr size_t kQuestionFrames = 7;
constexpr size_t kIdFrame = 1, kMechanismFrame = 5, kKeyFrame = 6;

}  // namespace

Result<std::unique_ptr<CurveGate>> CurveGate::open(boost::asio::io_context& io,
                                                   const ipc::Context& context,
                                                   std::map<std::string, uint32_t> clients) {
  HEARTH_ASSIGN_OR_RETURN(ipc::Socket socket,
                          ipc::Socket::open(context, ipc::SocketType::kRep, {}));
  HEARTH_TRY(socket.bind("inproc://zeromq.zap.01"));
  std::unique_ptr<CurveGate> gate(new CurveGate(std::move(clients)));
  CurveGate* raw = gate.get();
  gate->socket_ = std::make_unique<ZmqOnAsio>(
      io, std::move(socket), [raw](ipc::Message& message, bool) { raw->on_question(message); });
  return gate;
}

void CurveGate::on_question(const ipc::Message& question) {
  const bool whole = question.size() == kQuestionFrames;
  const std::string id(whole ? question[kIdFrame].view() : std::string_view());
  std::string user;
  if (whole && question[kMechanismFrame].view() == "CURVE") {
    const auto found = clients_.find(ipc::curve_key_of(question[kKeyFrame].view()));
    if (found != clients_.end()) user = fmt::format("{}", found->second);
  }
  if (user.empty()) log_debug("tcp_key_refused", "");  // the relay logs the address
  ipc::Message answer;
  ipc::append(answer, std::string_view("1.0"), id, user.empty() ? "400" : "200",
              user.empty() ? "unknown key" : "OK", user, std::string_view());
  socket_->send(answer);
}

}  // namespace hearth::broker
