#pragma once
// A thread for work that would keep the io thread from everybody else: reading a large request,
// writing one. One piece at a time, owners in turn. Its owner is the io thread, which alone knows
// what waits; the thread sees a piece of work and nothing else.

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "kernels/base/mailbox.h"

namespace hearth::broker {

/// Requests and answers up to here are read and written on the io thread itself: about a
/// millisecond.
inline constexpr size_t kInlineBytes = 64 << 10;

class SideThread {
 public:
  explicit SideThread(boost::asio::io_context& io) : io_(io) {}
  ~SideThread();  // joins; what has not begun is dropped
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;

  /// `work` runs on the thread, and `then` after it on the io thread. `bytes` of memory are held
  /// for it; callers bound their sum.
  void run(uint32_t owner, size_t bytes, std::function<void()> work, std::function<void()> then);
  /// Of everything that has not ended, and of one owner's part of it.
  size_t bytes() const { return bytes_; }
  size_t bytes_of(uint32_t owner) const;

 private:
  struct Job {
    std::function<void()> work;
    std::function<void()> then;
    size_t bytes = 0;
  };
  void start_next();
  void ended(uint32_t owner, size_t bytes);
  void serve();

  boost::asio::io_context& io_;
  Mailbox<std::function<void()>> inbox_{2};  // an empty one: end
  std::thread thread_;                       // started with the first piece
  std::map<uint32_t, std::deque<Job>> waiting_;
  std::map<uint32_t, size_t> bytes_of_;  // by owner, above 0
  size_t bytes_ = 0;
  uint32_t last_owner_ = 0;
  bool busy_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace hearth::broker
