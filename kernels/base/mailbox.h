#pragma once
// Bounded mailbox between two threads: the only place where hearth's threads share mutable state.
// Messages are owned values. Several threads may post; one drains.

#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/base/check.h"

namespace hearth {

template <typename T>
class Mailbox {
 public:
  /// `capacity`: messages held at most. `with_fd`: also raise an eventfd, for a reader that polls.
  explicit Mailbox(size_t capacity, bool with_fd = false) : capacity_(capacity) {
    if (with_fd) {
      fd_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
      HEARTH_CHECK(fd_ >= 0, "eventfd");
    }
  }
  ~Mailbox() {
    if (fd_ >= 0) ::close(fd_);
  }
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  /// False if full, leaving `message` untouched: the caller replies "busy" or keeps it.
  bool try_post(T& message) {
    {
      std::lock_guard lock(mutex_);
      if (queue_.size() >= capacity_) return false;
      queue_.push_back(std::move(message));
    }
    wake();
    return true;
  }

  /// Posts even when full. For messages whose number is bounded elsewhere, e.g. one per request.
  void post(T message) {
    {
      std::lock_guard lock(mutex_);
      queue_.push_back(std::move(message));
    }
    wake();
  }

  /// Everything posted so far, in order; never waits.
  std::vector<T> drain() {
    clear_fd();
    std::lock_guard lock(mutex_);
    return take_all();
  }

  /// Waits until there is a message or `timeout` has passed, then drains.
  std::vector<T> wait_and_drain(std::chrono::microseconds timeout) {
    std::unique_lock lock(mutex_);
    ready_.wait_for(lock, timeout, [this] { return !queue_.empty(); });
    clear_fd();  // before taking: a post in between raises it again, so no wake-up is lost
    return take_all();
  }

  size_t size() const {
    std::lock_guard lock(mutex_);
    return queue_.size();
  }

  /// Readable if something was posted since the last drain; -1 without `with_fd`.
  int fd() const { return fd_; }

 private:
  std::vector<T> take_all() {
    std::vector<T> out(std::make_move_iterator(queue_.begin()),
                       std::make_move_iterator(queue_.end()));
    queue_.clear();
    return out;
  }
  void wake() {
    ready_.notify_one();
    if (fd_ >= 0) {
      const uint64_t one = 1;
      // A full counter is already readable, so a refused write loses nothing.
      [[maybe_unused]] const ssize_t n = ::write(fd_, &one, sizeof one);
    }
  }
  void clear_fd() {
    if (fd_ < 0) return;
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t n = ::read(fd_, &count, sizeof count);
  }

  const size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<T> queue_;
  int fd_ = -1;
};

}  // namespace hearth
