#include "kernels/host/thread_pool.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <numeric>
#include <span>
#include <vector>

namespace hearth::kernels {
namespace {

TEST_CASE("every item is computed once, by a thread of the pool") {
  for (const int32_t threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    CHECK(pool.num_threads() == threads);
    for (const int64_t items : {0, 1, 2, 7, 1000}) {
      std::vector<int32_t> times(static_cast<size_t>(items));  // an item belongs to one thread
      std::atomic<bool> stranger{false};
      pool.run(items, [&](int64_t item, int32_t thread) {
        ++times[static_cast<size_t>(item)];
        if (thread < 0 || thread >= threads) stranger = true;
      });
      CHECK(std::count(times.begin(), times.end(), 1) == items);
      CHECK_FALSE(stranger);
    }
  }
}

TEST_CASE("thousands of short loops, each seeing what the one before wrote") {
  ThreadPool pool(4);
  std::vector<int64_t> values(64, 1);
  std::vector<int64_t> next(64);
  for (int round = 0; round < 5000; ++round) {
    pool.run(64, [&](int64_t i, int32_t) {
      const auto at = static_cast<size_t>(i);
      next[at] = values[(at + 1) % 64] + 1;
    });
    values.swap(next);
  }
  CHECK(std::accumulate(values.begin(), values.end(), int64_t{0}) == 64 * 5001);
}

TEST_CASE("loops after a sleep: threads wake, or are not waited for") {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // longer than threads spin
    std::atomic<int64_t> sum{0};
    pool.run(100, [&](int64_t item, int32_t) { sum += item; });
    CHECK(sum == 4950);
  }
}

TEST_CASE("set_active bounds the threads that take part") {
  ThreadPool pool(4);
  for (const int32_t active : {1, 3, 2, 4, 1, 4}) {
    pool.set_active(active);
    CHECK(pool.active() == active);
    for (int round = 0; round < 50; ++round) {
      std::atomic<int32_t> highest{0};
      pool.run(200, [&](int64_t, int32_t thread) {
        int32_t seen = highest.load();
        while (seen < thread && !highest.compare_exchange_weak(seen, thread)) {
        }
      });
      CHECK(highest < active);
    }
  }
}

TEST_CASE("other threads do take items") {
  ThreadPool pool(2);
  std::atomic<bool> helped{false};
  // The caller stays in its first item until another thread has taken one.
  for (int round = 0; round < 10'000 && !helped; ++round) {
    pool.run(2, [&](int64_t, int32_t thread) {
      if (thread == 1) helped = true;
      for (int i = 0; i < 1000 && !helped; ++i) std::this_thread::yield();
    });
  }
  CHECK(helped);
}

TEST_CASE("memory ahead is a hint: of any size, other or gone at any time") {
  ThreadPool pool(3);
  std::atomic<int64_t> sum{0};
  for (size_t round = 0; round < 300; ++round) {
    std::vector<std::byte> memory(round % 5 == 0 ? round : round * 4000);
    pool.set_ahead(round % 3 == 0 ? std::span<const std::byte>() : memory);
    pool.run(8, [&](int64_t item, int32_t) { sum += item; });
    memory = {};
    pool.run(8, [&](int64_t item, int32_t) { sum += item; });
  }
  CHECK(sum == 300 * 2 * 28);
}

TEST_CASE("an idle pool uses no CPU") {
  ThreadPool pool(4);
  pool.run(100, [](int64_t, int32_t) {});
  const auto cpu_us = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec * 1'000'000 + time.tv_nsec / 1000;
  };
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto before = cpu_us();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  CHECK(cpu_us() - before < 200'000);  // four spinning threads would take 800 000
}

TEST_CASE("pools are created and destroyed, used or not") {
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(3);
    if (i % 2 == 0) pool.run(10, [](int64_t, int32_t) {});
    if (i % 3 == 0) pool.set_active(1);
  }
}

}  // namespace
}  // namespace hearth::kernels
