#pragma once
// The io thread's time, shared by users over all sockets: received bytes are handled in turns, and
// accepted in turns, and are bounded per second. Owned and used by the io thread.

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
  /// A turn of a listener ends after so many connections that are served, or that are refused: 50
  /// to 200 us. Refusing is cheap, and must keep up with a flood even if each user's turn is long.
  static constexpr int kAcceptsPerTurn = 8;
  static constexpr int kRefusalsPerTurn = 32;

  LoopShares(boost::asio::io_context& io, const Clock& clock) : io_(io), clock_(clock) {}
  ~LoopShares() { *alive_ = false; }
  LoopShares(const LoopShares&) = delete;
  LoopShares& operator=(const LoopShares&) = delete;

  /// Runs `work` soon: one piece per turn of the loop, users in turn, however many connections each
  /// has. Work that has not run when this object ends is dropped.
  void take_turn(uint32_t uid, std::function<void()> work);
  /// The same for a listener's next connections. All listeners together
  /// take turns like one user, because whose connections they are is known only afterwards.
  void take_listeners_turn(std::function<void()> work);
  /// Counts one more new connection of the user. False: there are too many, close it unserved. Call
  /// it for every connection, before any other bound: a flood is cheapest to refuse here.
  bool may_connect(uint32_t uid);

 private:
  using Owner = uint64_t;
  static constexpr Owner kListeners = Owner{1} << 32;  // above all user ids

  void add(Owner owner, std::function<void()> work);
  void next_turn();

  boost::asio::io_context& io_;
  const Clock& clock_;
  Turns<Owner, std::function<void()>> turns_;
  bool turning_ = false;
  // By user: the time at which its connections so far are paid for at kConnectionsPerSecond.
  std::unordered_map<uint32_t, int64_t> paid_us_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // handlers may outlive us
};

}  // namespace hearth::broker
