#include "daemon/broker/process/side_thread.h"

#include <sys/resource.h>

#include <boost/asio/post.hpp>
#include <chrono>
#include <utility>

#include "daemon/broker/process/turns.h"

namespace hearth::broker {
SideThread::~SideThread() {
  *alive_ = false;
  if (!thread_.joinable()) return;
  inbox_.post({});
  thread_.join();
}

size_t SideThread::bytes_of(uint32_t owner) const {
  const auto found = bytes_of_.find(owner);
  return found == bytes_of_.end() ? 0 : found->second;
}

void SideThread::run(uint32_t owner, size_t bytes, std::function<void()> work,
                     std::function<void()> then) {
  if (bytes > 0) bytes_of_[owner] += bytes;
  bytes_ += bytes;
  waiting_.add(owner, {std::move(work), std::move(then), bytes});
  if (!busy_) start_next();
}

void SideThread::start_next() {
  auto next = waiting_.take();
  if (!next) return;
  busy_ = true;
  if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
  inbox_.post([this, alive = alive_, owner = next->first, job = std::move(next->second)]() mutable {
    job.work();
    boost::asio::post(io_, [this, alive, owner, bytes = job.bytes, then = std::move(job.then)] {
      if (!*alive) return;
      busy_ = false;
      ended(owner, bytes);
      start_next();
      then();
    });
  });
}

void SideThread::ended(uint32_t owner, size_t bytes) {
  bytes_ -= bytes;
  const auto found = bytes_of_.find(owner);
  if (found != bytes_of_.end() && (found->second -= bytes) == 0) bytes_of_.erase(found);
}

void SideThread::serve() {
  take_usual_turns();
  // On Linux the niceness applies to the calling thread only. Long requests may wait and streams
  // may not; where it is refused, they share the cores.
  ::setpriority(PRIO_PROCESS, 0, niceness_);
  while (true) {
    for (std::function<void()>& work : inbox_.wait_and_drain(std::chrono::hours(1))) {
      if (!work) return;
      work();
    }
  }
}

}  // namespace hearth::broker
