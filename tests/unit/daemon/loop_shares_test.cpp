#include "daemon/broker/process/loop_shares.h"

#include <doctest/doctest.h>

#include <boost/asio/post.hpp>
#include <string>

namespace hearth::broker {
namespace {

TEST_CASE("pieces of work run in turn by user, whatever order they came in") {
  boost::asio::io_context io;
  const FakeClock clock;
  LoopShares shares(io, clock);
  std::string order;
  for (int i = 0; i < 3; ++i) shares.take_turn(1, [&] { order += 'a'; });
  shares.take_turn(2, [&] { order += 'b'; });
  CHECK(order.empty());
  io.run();
  CHECK(order == "abaa");
}

TEST_CASE("between two pieces of work the loop does what else is ready") {
  boost::asio::io_context io;
  const FakeClock clock;
  LoopShares shares(io, clock);
  std::string order;
  for (int i = 0; i < 3; ++i) shares.take_turn(1, [&] { order += 'a'; });
  boost::asio::post(io, [&] { order += '1'; });
  io.run();
  CHECK(order == "a1aa");
}

TEST_CASE("work may ask for another turn") {
  boost::asio::io_context io;
  const FakeClock clock;
  LoopShares shares(io, clock);
  std::string order;
  shares.take_turn(1, [&] {
    order += 'a';
    shares.take_turn(1, [&] { order += 'A'; });
  });
  io.run();
  CHECK(order == "aA");
}

TEST_CASE("the listeners take turns with the users, as one of them") {
  boost::asio::io_context io;
  const FakeClock clock;
  LoopShares shares(io, clock);
  std::string order;
  for (int i = 0; i < 3; ++i) shares.take_listeners_turn([&] { order += 'L'; });
  for (int i = 0; i < 2; ++i) shares.take_turn(1, [&] { order += 'a'; });
  // The greatest user id is a user's too.
  for (int i = 0; i < 2; ++i) shares.take_turn(UINT32_MAX, [&] { order += 'z'; });
  io.run();
  CHECK(order == "azLazLL");
}

TEST_CASE("work that waits when the shares end does not run") {
  boost::asio::io_context io;
  const FakeClock clock;
  bool ran = false;
  {
    LoopShares shares(io, clock);
    shares.take_turn(1, [&] { ran = true; });
  }
  io.run();
  CHECK_FALSE(ran);
}

TEST_CASE("new connections are bounded at once and per second, for each user alone") {
  boost::asio::io_context io;
  FakeClock clock;
  LoopShares shares(io, clock);
  const auto admitted = [&](uint32_t uid, int64_t tries) {
    int64_t count = 0;
    for (int64_t i = 0; i < tries; ++i) count += shares.may_connect(uid) ? 1 : 0;
    return count;
  };
  CHECK(admitted(7, 5000) == LoopShares::kConnectionsAtOnce);
  CHECK(admitted(8, 10) == 10);
  clock.advance_us(100'000);
  CHECK(admitted(7, 5000) == LoopShares::kConnectionsPerSecond / 10);
  // Idle time saves up no more than the first burst.
  clock.advance_us(1'000'000'000);
  CHECK(admitted(7, 5000) == LoopShares::kConnectionsAtOnce);
}

}  // namespace
}  // namespace hearth::broker
