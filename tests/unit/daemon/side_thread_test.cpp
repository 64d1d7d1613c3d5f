#include "daemon/broker/process/side_thread.h"

#include <doctest/doctest.h>

#include <boost/asio/executor_work_guard.hpp>
#include <chrono>
#include <mutex>
#include <string>
#include <vector>

namespace hearth::broker {
namespace {

// The jobs in `order` end while the first one is held, so that all wait at once.
std::vector<std::string> order_of(const std::vector<std::pair<uint32_t, std::string>>& pieces) {
  boost::asio::io_context io;
  const auto open = boost::asio::make_work_guard(io);
  SideThread side(io);
  std::mutex gate;
  gate.lock();
  std::vector<std::string> ended;
  side.run(
      7, 1, [&gate] { std::lock_guard held(gate); }, [] {});
  for (const auto& [owner, name] : pieces) {
    side.run(
        owner, 10, [] {}, [&ended, name = name] { ended.push_back(name); });
  }
  CHECK(side.bytes() == 1 + 10 * pieces.size());
  gate.unlock();
  while (ended.size() < pieces.size()) {
    REQUIRE(io.run_one_for(std::chrono::seconds(60)) == 1);
  }
  CHECK(side.bytes() == 0);
  CHECK(side.bytes_of(1) == 0);
  return ended;
}

TEST_CASE("many jobs of one owner do not delay another owner's single job") {
  CHECK(order_of({{1, "a1"}, {1, "a2"}, {1, "a3"}, {1, "a4"}, {2, "b1"}, {3, "c1"}}) ==
        std::vector<std::string>{"a1", "b1", "c1", "a2", "a3", "a4"});
}

TEST_CASE("the bytes that an owner has queued are known") {
  boost::asio::io_context io;
  const auto open = boost::asio::make_work_guard(io);
  SideThread side(io);
  std::mutex gate;
  gate.lock();
  bool ended = false;
  side.run(
      1, 30, [&gate] { std::lock_guard held(gate); }, [] {});
  side.run(
      1, 5, [] {}, [] {});
  side.run(
      2, 0, [] {}, [&ended] { ended = true; });
  CHECK(side.bytes_of(1) == 35);
  CHECK(side.bytes_of(2) == 0);
  CHECK(side.bytes() == 35);
  gate.unlock();
  while (!ended || side.bytes() > 0) {
    REQUIRE(io.run_one_for(std::chrono::seconds(60)) == 1);
  }
}

}  // namespace
}  // namespace hearth::broker
