#pragma once
// The broker's end of a worker's pipe, in the Asio loop: listens, accepts the one process that may
// connect, and passes on its messages. Owned and used by the io thread.

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <filesystem>
#include <memory>
#include <string>

#include "ipc/wire/worker_pipe.h"
#include "kernels/base/result.h"

namespace hearth::broker {

class WorkerSocket {
 public:
  /// Either call may destroy the socket.
  class Reader {
   public:
    virtual ~Reader() = default;
    virtual void on_message(const ipc::PipeMessage& message) = 0;
    /// The bytes received are not a message.
    virtual void on_broken(const std::string& why) = 0;
  };

  /// Binds and listens, mode 0600.
  static Result<std::unique_ptr<WorkerSocket>> listen(boost::asio::io_context& io,
                                                      const std::filesystem::path& path);
  ~WorkerSocket();
  WorkerSocket(const WorkerSocket&) = delete;
  WorkerSocket& operator=(const WorkerSocket&) = delete;

  /// Sets the process that may connect and begins to deliver its messages to `reader`, which
  /// outlives this.
  void start(int32_t pid, Reader& reader);
  /// False: not connected yet, or disconnected.
  bool send(ipc::PipeKind kind, uint64_t number, std::string bytes);
  /// Delivers all messages that have arrived, without waiting for the loop.
  void drain();

 private:
  WorkerSocket(boost::asio::io_context& io, int listen_fd);
  void wait_for_peer();
  void accept();
  void wait_for_bytes();
  void wait_for_room();
  bool take();

  boost::asio::posix::stream_descriptor listener_;
  boost::asio::posix::stream_descriptor stream_;  // does not own the descriptor; the pipe does
  int32_t pid_ = 0;
  Reader* reader_ = nullptr;               // set by start()
  std::shared_ptr<ipc::WorkerPipe> pipe_;  // null before it connects; kept while a message is read
  bool broken_ = false;
  bool waiting_for_room_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // handlers may outlive us
};

}  // namespace hearth::broker
