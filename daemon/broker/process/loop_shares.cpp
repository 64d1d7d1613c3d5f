#include "daemon/broker/process/loop_shares.h"

#include <boost/asio/post.hpp>
#include <utility>

namespace hearth::broker {

void LoopShares::take_turn(uint32_t uid, std::function<void()> work) {
  turns_.add(uid, std::move(work));
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

}  // namespace hearth::broker
