#pragma once
// A ZeroMQ socket inside an Asio loop.
//
// ZMQ_FD is edge-triggered, and a send consumes the edge as a receive does. So drain all messages
// before every wait, and check again after every send. The descriptor belongs to libzmq: release
// it, never close it. Owned and used by the io thread.

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <memory>

#include "ipc/wire/socket.h"

namespace hearth::broker {

class ZmqOnAsio {
 public:
  /// Called for every message; malformed ones (too many frames) with `ok` false. It may send and
  /// may destroy this object.
  using OnMessage = std::function<void(ipc::Message& message, bool ok)>;

  ZmqOnAsio(boost::asio::io_context& io, ipc::Socket socket, OnMessage on_message);
  ~ZmqOnAsio();
  ZmqOnAsio(const ZmqOnAsio&) = delete;
  ZmqOnAsio& operator=(const ZmqOnAsio&) = delete;

  ipc::SendOutcome send(ipc::Message& message);

 private:
  void drain();
  void schedule();  // drains once, in the next turn of the loop
  void wait();

  boost::asio::io_context& io_;
  ipc::Socket socket_;
  boost::asio::posix::stream_descriptor descriptor_;
  OnMessage on_message_;
  bool scheduled_ = false;
  bool waiting_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // handlers may outlive us
};

}  // namespace hearth::broker
