#include "daemon/broker/process/acceptor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "daemon/broker/process/connection_rates.h"
#include "daemon/broker/process/descriptor.h"
#include "daemon/broker/process/turns.h"
#include "kernels/base/log.h"
#include "kernels/base/match.h"

namespace hearth::broker {
namespace {

using std::chrono::milliseconds;

// Of one socket, before the next socket's.
constexpr int kAcceptsPerTurn = 64;
// How long the thread waits for the io thread before it reads its inbox again.
constexpr milliseconds kFreeWait{10};
// Until the next try after an error, and until it is checked whether a report is due.
constexpr int kRetryMs = 100;
constexpr int64_t kReportEveryUs = 500'000;
// Connections without a known user have one bound together.
constexpr uint32_t kNobody = UINT32_MAX;

Descriptor open_reserve() { return Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace

/// What the thread owns and does.
class Acceptor::Loop {
 public:
  explicit Loop(Acceptor& acceptor)
      : acceptor_(acceptor), alive_(acceptor.alive_), rates_(acceptor.clock_) {}

  void run();

 private:
  struct Listener {
    uint64_t number = 0;
    Descriptor socket;
    NameUser name_user = nullptr;
    bool failed = false;  // its error would keep poll() from waiting
    uint64_t refused = 0;
    std::string_view why{};
    int64_t report_due_us = 0;
  };

  bool read_inbox();
  void wait();
  void accept_some(Listener& listener);
  void refuse(Listener& listener, std::string_view why);
  void hand_over(const Listener& listener, Descriptor connection, std::optional<uint32_t> uid);
  bool turn_one_away(Listener& listener);
  void report(Listener& listener);

  Acceptor& acceptor_;
  const std::shared_ptr<bool> alive_;
  ConnectionRates rates_;
  std::vector<Listener> listeners_;
  std::vector<pollfd> items_;
  Descriptor reserve_ = open_reserve();  // closed briefly when no other descriptor is free
};

void Acceptor::Loop::run() {
  while (read_inbox()) {
    wait();
    for (size_t i = 0; i < listeners_.size(); ++i) {
      if (items_[i + 1].revents != 0) accept_some(listeners_[i]);
      report(listeners_[i]);
    }
  }
}

// False: stop.
bool Acceptor::Loop::read_inbox() {
  bool goes_on = true;
  for (Message& message : acceptor_.inbox_.drain()) {
    match(
        message,
        [this](const Add& add) {
          listeners_.push_back({.number = add.number,
                                .socket = Descriptor(add.listener),
                                .name_user = add.name_user});
        },
        [this](const Remove& remove) {
          std::erase_if(listeners_, [&](const Listener& l) { return l.number == remove.number; });
        },
        [&](const Stop&) { goes_on = false; });
  }
  return goes_on;
}

void Acceptor::Loop::wait() {
  items_.assign(1, {.fd = acceptor_.inbox_.fd(), .events = POLLIN, .revents = 0});
  bool again = false;
  for (Listener& listener : listeners_) {
    again |= listener.failed || listener.refused > 0;
    items_.push_back({.fd = std::exchange(listener.failed, false) ? -1 : listener.socket.get(),
                      .events = POLLIN,
                      .revents = 0});
  }
  ::poll(items_.data(), items_.size(), again ? kRetryMs : -1);
}

void Acceptor::Loop::accept_some(Listener& listener) {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    if (!acceptor_.free_.try_acquire_for(kFreeWait)) return;
    Descriptor connection(
        ::accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection.get() >= 0) {
      const std::optional<uint32_t> uid = listener.name_user(connection.get());
      if (rates_.may_connect(uid.value_or(kNobody))) {
        hand_over(listener, std::move(connection), uid);
      } else {
        acceptor_.free_.release();
        refuse(listener, "the user opens too many connections per second");
      }
      continue;
    }
    const int problem = errno;
    acceptor_.free_.release();
    if (problem == EINTR || problem == ECONNABORTED) continue;
    if ((problem == EMFILE || problem == ENFILE) && turn_one_away(listener)) continue;
    listener.failed = problem != EAGAIN && problem != EWOULDBLOCK;
    if (listener.failed) log_warn("accept", "error=\"{}\"", std::strerror(problem));
    return;
  }
}

void Acceptor::Loop::refuse(Listener& listener, std::string_view why) {
  ++listener.refused;
  listener.why = why;
}

void Acceptor::Loop::hand_over(const Listener& listener, Descriptor connection,
                               std::optional<uint32_t> uid) {
  boost::asio::post(acceptor_.io_, [acceptor = &acceptor_, alive = alive_, number = listener.number,
                                    connection = std::move(connection), uid]() mutable {
    if (*alive) acceptor->hand_over(number, connection.release(), uid);
  });
}

// Accepts and closes one connection with the reserved descriptor; without one it would wait
// forever. False: none waits, or the reserve is gone too.
bool Acceptor::Loop::turn_one_away(Listener& listener) {
  reserve_.close();
  Descriptor connection(::accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const bool one = connection.get() >= 0;
  connection.close();
  reserve_ = open_reserve();
  if (one) refuse(listener, "no descriptor is left");
  return one;
}

void Acceptor::Loop::report(Listener& listener) {
  const int64_t now_us = SteadyClock().now_us();
  if (listener.refused == 0 || now_us < listener.report_due_us) return;
  listener.report_due_us = now_us + kReportEveryUs;
  boost::asio::post(acceptor_.io_,
                    [acceptor = &acceptor_, alive = alive_, number = listener.number,
                     count = std::exchange(listener.refused, 0), why = listener.why] {
                      if (*alive) acceptor->note_refused(number, count, why);
                    });
}

// ---- The io thread's side -----------------------------------------------------------------------

Acceptor::~Acceptor() {
  *alive_ = false;
  if (!thread_.joinable()) return;
  inbox_.post(Stop{});
  thread_.join();
}

uint64_t Acceptor::add(int listener, NameUser name_user, AcceptHandlers handlers) {
  const uint64_t number = ++last_number_;
  handlers_.emplace(number, std::make_shared<const AcceptHandlers>(std::move(handlers)));
  if (!work_) work_.emplace(io_.get_executor());
  inbox_.post(Add{.number = number, .listener = listener, .name_user = name_user});
  if (!thread_.joinable()) {
    thread_ = std::thread([this] {
      take_usual_turns();
      Loop(*this).run();
    });
  }
  return number;
}

void Acceptor::remove(uint64_t number) {
  if (handlers_.erase(number) == 0) return;
  inbox_.post(Remove{number});
  if (handlers_.empty()) work_.reset();
}

void Acceptor::hand_over(uint64_t number, int fd, std::optional<uint32_t> uid) {
  free_.release();
  const auto found = handlers_.find(number);
  if (found == handlers_.end()) {
    ::close(fd);
    return;
  }
  const std::shared_ptr<const AcceptHandlers> handlers = found->second;
  handlers->on_connection(fd, uid);
}

void Acceptor::note_refused(uint64_t number, uint64_t count, std::string_view why) {
  const auto found = handlers_.find(number);
  if (found == handlers_.end()) return;
  const std::shared_ptr<const AcceptHandlers> handlers = found->second;
  handlers->on_refused(count, why);
}

}  // namespace hearth::broker
