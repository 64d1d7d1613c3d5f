#include "kernels/host/op_thread.h"

#include <pthread.h>

#include <chrono>
#include <future>
#include <utility>

namespace hearth::kernels {
namespace {

/// Longer than a step of one row waits for the stage before it to be handed over.
constexpr auto kHandOverSpin = std::chrono::microseconds(50);

}  // namespace

void wait_for_count(const std::atomic<uint64_t>& counter, uint64_t value) {
  const auto deadline = std::chrono::steady_clock::now() + kHandOverSpin;
  while (true) {
    const uint64_t met = counter.load(std::memory_order_acquire);
    if (met >= value) return;
    if (std::chrono::steady_clock::now() >= deadline) counter.wait(met, std::memory_order_acquire);
  }
}

OpThread::OpThread() : thread_([this] { work(); }) {
  pthread_setname_np(thread_.native_handle(), "stage");
}

OpThread::~OpThread() {
  post(nullptr);
  thread_.join();
}

void OpThread::post(std::function<void()> call) {
  {
    const std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
    posted_.fetch_add(1, std::memory_order_release);
  }
  posted_.notify_one();
}

void OpThread::run(std::function<void()> call) {
  std::promise<void> done;
  post([&] {
    call();
    done.set_value();
  });
  done.get_future().wait();
}

void OpThread::work() {
  for (uint64_t next = 1;; ++next) {
    wait_for_count(posted_, next);
    std::function<void()> call;
    {
      const std::lock_guard lock(mutex_);
      call = std::move(calls_.front());
      calls_.pop_front();
    }
    if (call == nullptr) return;
    call();
  }
}

}  // namespace hearth::kernels
