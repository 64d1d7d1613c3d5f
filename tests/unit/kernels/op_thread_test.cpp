#include "kernels/host/op_thread.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <vector>

namespace hearth::kernels {
namespace {

TEST_CASE("calls run in their order, all on one thread") {
  std::vector<int> order;
  std::set<std::thread::id> threads;
  OpThread thread;
  for (int i = 0; i < 1000; ++i) {
    thread.post([&, i] {
      order.push_back(i);
      threads.insert(std::this_thread::get_id());
    });
  }
  thread.run([&] { order.push_back(1000); });
  REQUIRE(order.size() == 1001);
  for (int i = 0; i <= 1000; ++i) CHECK(order[static_cast<size_t>(i)] == i);
  CHECK(threads.size() == 1);
  CHECK(threads.count(std::this_thread::get_id()) == 0);
}

TEST_CASE("calls that are waiting run before the thread ends") {
  std::atomic<int> calls = 0;
  {
    OpThread thread;
    thread.post([] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
    for (int i = 0; i < 10; ++i) thread.post([&calls] { ++calls; });
  }
  CHECK(calls == 10);
}

TEST_CASE("a count is waited for, by a thread that sleeps, too") {
  std::atomic<uint64_t> count = 0;
  OpThread thread;
  for (const int sleep_us : {0, 1, 3000}) {
    const uint64_t want = count + 1;
    thread.post([&count, sleep_us] {
      std::this_thread::sleep_for(std::chrono::microseconds(sleep_us));
      ++count;
      count.notify_one();
    });
    wait_for_count(count, want);
    CHECK(count >= want);
  }
}

}  // namespace
}  // namespace hearth::kernels
