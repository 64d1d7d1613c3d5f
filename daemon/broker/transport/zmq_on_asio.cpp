#include "daemon/broker/transport/zmq_on_asio.h"

#include <boost/asio/post.hpp>

#include "kernels/base/log.h"

namespace hearth::broker {
namespace {

// Messages taken per turn, so that a flood on one socket does not starve the others.
constexpr int kBurst = 64;

}  // namespace

ZmqOnAsio::ZmqOnAsio(boost::asio::io_context& io, ipc::Socket socket, OnMessage on_message)
    : io_(io),
      socket_(std::move(socket)),
      descriptor_(io, socket_.fd()),
      on_message_(std::move(on_message)) {
  schedule();
}

ZmqOnAsio::~ZmqOnAsio() {
  *alive_ = false;
  descriptor_.release();
}

ipc::SendOutcome ZmqOnAsio::send(ipc::Message& message) {
  const ipc::SendOutcome outcome = socket_.send(message);
  schedule();
  return outcome;
}

void ZmqOnAsio::schedule() {
  if (scheduled_) return;
  scheduled_ = true;
  boost::asio::post(io_, [this, alive = alive_] {
    if (!*alive) return;
    scheduled_ = false;
    drain();
  });
}

void ZmqOnAsio::drain() {
  const std::shared_ptr<bool> alive = alive_;
  for (int i = 0; i < kBurst; ++i) {
    ipc::Message message;
    switch (socket_.receive(message)) {
      case ipc::ReceiveOutcome::kReceived: on_message_(message, true); break;
      case ipc::ReceiveOutcome::kMalformed: on_message_(message, false); break;
      case ipc::ReceiveOutcome::kWouldBlock: wait(); return;
      case ipc::ReceiveOutcome::kFailed:
        log_error("socket_failed", "fd={}", descriptor_.native_handle());
        return;
    }
    if (!*alive) return;
  }
  schedule();
}

void ZmqOnAsio::wait() {
  if (waiting_) return;
  waiting_ = true;
  descriptor_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                         [this, alive = alive_](const boost::system::error_code& error) {
                           if (!*alive) return;
                           waiting_ = false;
                           if (!error) drain();
                         });
}

}  // namespace hearth::broker
