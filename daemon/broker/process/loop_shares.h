#pragma once
// The io thread's time, shared by users over all sockets: received bytes are handled in turns.
// Owned and used by the io thread.

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/base/turns.h"

namespace hearth::broker {

class LoopShares {
 public:
  explicit LoopShares(boost::asio::io_context& io) : io_(io) {}
  ~LoopShares() { *alive_ = false; }
  LoopShares(const LoopShares&) = delete;
  LoopShares& operator=(const LoopShares&) = delete;

  /// Runs `work` soon: one piece per turn of the loop, users in turn, however many connections each
  /// has. Work that has not run when this object ends is dropped.
  void take_turn(uint32_t uid, std::function<void()> work);

 private:
  void next_turn();

  boost::asio::io_context& io_;
  Turns<uint32_t, std::function<void()>> turns_;
  bool turning_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // handlers may outlive us
};

}  // namespace hearth::broker
