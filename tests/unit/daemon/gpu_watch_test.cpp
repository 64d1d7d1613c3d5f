// Reports of a GPU whose driver answers, stops answering, or never answers.

#include "daemon/worker/observe/gpu_watch.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>

namespace hearth::worker {
namespace {

constexpr int64_t kOftenUs = 1000;

ipc::GpuSnapshot named(const std::string& name) {
  ipc::GpuSnapshot out;
  out.name = name;
  return out;
}

/// Until it has been read this often.
void wait_for(const std::atomic<int>& count, int wanted) {
  while (count < wanted) std::this_thread::yield();
}

TEST_CASE("gpu watch: the last reading is reported until it is old") {
  FakeClock clock;
  std::atomic<int> reads = 0;
  std::promise<void> hold;
  const std::shared_future<void> held = hold.get_future().share();
  const auto read = [&reads, held]() -> std::optional<ipc::GpuSnapshot> {
    if (++reads == 4) held.wait();
    return named("read " + std::to_string(std::min(3, reads.load())));
  };
  {
    const GpuWatch watch(read, clock, kOftenUs);
    wait_for(reads, 4);  // the fourth hangs: the last reading is reported
    REQUIRE(watch.latest().has_value());
    CHECK(watch.latest()->name == "read 3");
    clock.advance_us(GpuWatch::kOldUs);
    CHECK(watch.latest().has_value());
    clock.advance_us(1);
    CHECK_FALSE(watch.latest().has_value());
    hold.set_value();
    wait_for(reads, 6);
    CHECK(watch.latest().has_value());  // read again
  }
}

TEST_CASE("gpu watch: a library that is missing or stops answering") {
  FakeClock clock;
  std::atomic<int> reads = 0;
  const GpuWatch watch(
      [&reads]() -> std::optional<ipc::GpuSnapshot> {
        return reads++ < 2 ? std::optional(named("here")) : std::nullopt;
      },
      clock, kOftenUs);
  wait_for(reads, 4);
  CHECK_FALSE(watch.latest().has_value());
}

TEST_CASE("gpu watch: a driver that never answers blocks no thread, and not the end") {
  // Outlives the watch, as the thread does; it ends with the program.
  struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool asked = false;
    bool open = false;
    bool passed = false;
  };
  const auto gate = std::make_shared<Gate>();
  {
    FakeClock clock;
    const GpuWatch watch(
        [gate]() -> std::optional<ipc::GpuSnapshot> {
          std::unique_lock lock(gate->mutex);
          gate->asked = true;
          gate->changed.notify_all();
          gate->changed.wait(lock, [&] { return gate->open; });
          gate->passed = true;
          gate->changed.notify_all();
          return named("too late");
        },
        clock, kOftenUs);
    {
      std::unique_lock lock(gate->mutex);
      gate->changed.wait(lock, [&] { return gate->asked; });
    }
    CHECK_FALSE(watch.latest().has_value());
  }
  // Its answer comes after the watch and the clock are destroyed: it touches neither.
  std::unique_lock lock(gate->mutex);
  gate->open = true;
  gate->changed.notify_all();
  gate->changed.wait(lock, [&] { return gate->passed; });
}

}  // namespace
}  // namespace hearth::worker
