#pragma once
// The io thread's time, shared by users over all sockets: received bytes are handled in turns, and
// new connections are bounded per second. Owned and used by the io thread.

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "kernels/base/clock.h"
#include "kernels/base/turns.h"

namespace hearth::broker {

class LoopShares {
 public:
  /// New connections of one user: the sustained rate, and the largest burst.
  static constexpr int64_t kConnectionsPerSecond = 500;
  static constexpr int64_t kConnectionsAtOnce = 1000;

  LoopShares(boost::asio::io_context& io, const Clock& clock) : io_(io), clock_(clock) {}
  ~LoopShares() { *alive_ = false; }
  LoopShares(const LoopShares&) = delete;
  LoopShares& operator=(const LoopShares&) = delete;

  /// Runs `work` soon: one piece per turn of the loop, users in turn, however many connections each
  /// has. Work that has not run when this object ends is dropped.
  void take_turn(uint32_t uid, std::function<void()> work);
  /// Counts one more new connection of the user. False: there are too many, close it unserved.
  bool may_connect(uint32_t uid);

 private:
  void next_turn();

  boost::asio::io_context& io_;
  const Clock& clock_;
  Turns<uint32_t, std::function<void()>> turns_;
  bool turning_ = false;
  // By user: the time at which its connections so far are paid for at kConnectionsPerSecond.
  std::unordered_map<uint32_t, int64_t> paid_us_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // handlers may outlive us
};

}  // namespace hearth::broker
