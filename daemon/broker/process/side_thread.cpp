#include "daemon/broker/process/side_thread.h"

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

void SideThread::run(uint32_t owner, std::function<void()> work, std::function<void()> then) {
  waiting_[owner].push_back({std::move(work), std::move(then)});
  if (!busy_) start_next();
}

void SideThread::start_next() {
  if (waiting_.empty()) return;
  auto turn = waiting_.upper_bound(last_owner_);
  if (turn == waiting_.end()) turn = waiting_.begin();
  last_owner_ = turn->first;
  Job job = std::move(turn->second.front());
  turn->second.pop_front();
  if (turn->second.empty()) waiting_.erase(turn);
  busy_ = true;
  if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
  inbox_.post([this, alive = alive_, job = std::move(job)]() mutable {
    job.work();
    boost::asio::post(io_, [this, alive, then = std::move(job.then)] {
      if (!*alive) return;
      busy_ = false;
      start_next();
      then();
    });
  });
}

void SideThread::serve() {
  take_usual_turns();
  while (true) {
    for (std::function<void()>& work : inbox_.wait_and_drain(std::chrono::hours(1))) {
      if (!work) return;
      work();
    }
  }
}

}  // namespace hearth::broker
