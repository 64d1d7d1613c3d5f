#include "daemon/broker/process/loop_shares.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>

namespace hearth::broker {

void LoopShares::take_turn(uint32_t uid, std::function<void()> work) { add(uid, std::move(work)); }

void LoopShares::take_listeners_turn(std::function<void()> work) {
  add(kListeners, std::move(work));
}

void LoopShares::add(Owner owner, std::function<void()> work) {
  turns_.add(owner, std::move(work));
  if (std::exchange(turning_, true)) return;
  next_turn();
}

// Between two turns the loop does whatever else is ready.
void LoopShares::next_turn() {
  boost::asio::post(io_, [this, alive = alive_] {
    if (!*alive) return;
    const auto turn = turns_.take();
    turning_ = !turns_.empty();
    if (turning_) next_turn();
    turn->second();
  });
}

bool LoopShares::may_connect(uint32_t uid) {
  constexpr int64_t kEachUs = 1'000'000 / kConnectionsPerSecond;
  const int64_t now_us = clock_.now_us();
  int64_t& paid_us = paid_us_.try_emplace(uid, now_us).first->second;
  const int64_t next_us = std::max(paid_us, now_us) + kEachUs;
  if (next_us > now_us + kConnectionsAtOnce * kEachUs) return false;
  paid_us = next_us;
  return true;
}

}  // namespace hearth::broker
