#pragma once
// Accepts the connections of all sockets, on a thread of its own, so that a flood of them costs the
// io thread nothing. Each user's new connections are bounded per second, over all sockets; those
// above the bound are closed unserved. Owned and called by the io thread.

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <semaphore>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <variant>

#include "kernels/base/clock.h"
#include "kernels/base/mailbox.h"

namespace hearth::broker {

/// Callbacks of one socket, from the loop.
struct AcceptHandlers {
  /// `fd` does not block, is closed on exec, and is the callee's to close. `uid`: its user; nothing
  /// if the kernel names none.
  std::function<void(int fd, std::optional<uint32_t> uid)> on_connection{};
  /// `count` connections were closed unserved since the last call, the last one because of `why`.
  std::function<void(uint64_t count, std::string_view why)> on_refused{};
};

class Acceptor {
 public:
  /// Determines the user at the other end of a connection. Called on the acceptor's thread.
  using NameUser = std::optional<uint32_t> (*)(int fd);

  /// `clock` is read on the acceptor's thread, too.
  Acceptor(boost::asio::io_context& io, const Clock& clock) : io_(io), clock_(clock) {}
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  /// Accepts connections of `listener`, a socket that listens and does not block, until remove() of
  /// the number returned. The acceptor owns the socket from here on. Running out of descriptors
  /// refuses connections and does not stop it.
  uint64_t add(int listener, NameUser name_user, AcceptHandlers handlers);
  /// No callback follows. The socket is closed soon.
  void remove(uint64_t number);

 private:
  // Accepted connections that wait for the loop; the next ones wait in the backlog.
  static constexpr ptrdiff_t kMaxWaiting = 64;

  class Loop;
  struct Add {
    uint64_t number = 0;
    int listener = -1;
    NameUser name_user = nullptr;
  };
  struct Remove {
    uint64_t number = 0;
  };
  struct Stop {};
  using Message = std::variant<Add, Remove, Stop>;

  void hand_over(uint64_t number, int fd, std::optional<uint32_t> uid);
  void note_refused(uint64_t number, uint64_t count, std::string_view why);

  boost::asio::io_context& io_;
  const Clock& clock_;
  std::unordered_map<uint64_t, std::shared_ptr<const AcceptHandlers>> handlers_;  // by number
  uint64_t last_number_ = 0;
  Mailbox<Message> inbox_{64, true};
  std::counting_semaphore<kMaxWaiting> free_{kMaxWaiting};
  // Connections may come as long as there is a socket.
  std::optional<boost::asio::executor_work_guard<boost::asio::io_context::executor_type>> work_;
  std::thread thread_;                                          // started with the first socket
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // handlers may outlive us
};

}  // namespace hearth::broker
