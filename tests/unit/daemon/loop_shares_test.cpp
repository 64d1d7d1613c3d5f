#include "daemon/broker/process/loop_shares.h"

#include <doctest/doctest.h>

#include <boost/asio/post.hpp>
#include <string>

namespace hearth::broker {
namespace {

TEST_CASE("pieces of work run in turn by user, whatever order they came in") {
  boost::asio::io_context io;
  LoopShares shares(io);
  std::string order;
  for (int i = 0; i < 3; ++i) shares.take_turn(1, [&] { order += 'a'; });
  shares.take_turn(2, [&] { order += 'b'; });
  CHECK(order.empty());
  io.run();
  CHECK(order == "abaa");
}

TEST_CASE("between two pieces of work the loop does what else is ready") {
  boost::asio::io_context io;
  LoopShares shares(io);
  std::string order;
  for (int i = 0; i < 3; ++i) shares.take_turn(1, [&] { order += 'a'; });
  boost::asio::post(io, [&] { order += '1'; });
  io.run();
  CHECK(order == "a1aa");
}

TEST_CASE("work may ask for another turn") {
  boost::asio::io_context io;
  LoopShares shares(io);
  std::string order;
  shares.take_turn(1, [&] {
    order += 'a';
    shares.take_turn(1, [&] { order += 'A'; });
  });
  io.run();
  CHECK(order == "aA");
}

TEST_CASE("work that waits when the shares end does not run") {
  boost::asio::io_context io;
  bool ran = false;
  {
    LoopShares shares(io);
    shares.take_turn(1, [&] { ran = true; });
  }
  io.run();
  CHECK_FALSE(ran);
}

}  // namespace
}  // namespace hearth::broker
