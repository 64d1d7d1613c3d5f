#include "kernels/host/op_thread.h"

#include <pthread.h>

#include <utility>

#include "kernels/host/spin.h"

namespace hearth::kernels {

void wait_for_count(const std::atomic<uint64_t>& counter, uint64_t value) {
  const auto reached = [&] { return counter.load(std::memory_order_acquire) >= value; };
  while (!spin_until(reached)) {
    const uint64_t met = counter.load(std::memory_order_acquire);
    if (met < value) counter.wait(met, std::memory_order_acquire);
  }
}

OpThread::OpThread() : thread_([this] { work(); }) {
  pthread_setname_np(thread_.native_handle(), "stage");
}

OpThread::~OpThread() {
  post(nullptr);
  thread_.join();
}

uint64_t OpThread::add(std::function<void()> call) {
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
    number = posted_.fetch_add(1, std::memory_order_release) + 1;
  }
  posted_.notify_one();
  return number;
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
    made_.store(next, std::memory_order_release);
    made_.notify_all();
  }
}

}  // namespace hearth::kernels
