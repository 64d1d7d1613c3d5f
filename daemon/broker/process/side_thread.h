#pragma once
// A thread for work that would block the io thread for too long: parsing a large request, writing
// one. It runs one piece of work at a time; owners take turns. The io thread owns the queue; the
// thread sees only the current piece.

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "kernels/base/mailbox.h"
#include "kernels/base/turns.h"

namespace hearth::broker {

/// Requests and answers up to this size are parsed and written on the io thread, which takes about
/// a millisecond.
inline constexpr size_t kInlineBytes = 64 << 10;

class SideThread {
 public:
  /// `niceness`: of the thread, added to the process's.
  explicit SideThread(boost::asio::io_context& io, int niceness = 10)
      : io_(io), niceness_(niceness) {}
  ~SideThread();  // joins; work that has not begun is dropped
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;

  /// Runs `work` on the side thread, then `then` on the io thread. `bytes` is the memory held for
  /// it; callers bound the sum.
  void run(uint32_t owner, size_t bytes, std::function<void()> work, std::function<void()> then);
  /// Bytes of all unfinished work, and of one owner's.
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
  const int niceness_;
  Mailbox<std::function<void()>> inbox_{2};  // an empty function ends the thread
  std::thread thread_;                       // started with the first piece
  Turns<uint32_t, Job> waiting_;
  std::map<uint32_t, size_t> bytes_of_;  // by owner, above 0
  size_t bytes_ = 0;
  bool busy_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace hearth::broker
