#include "kernels/host/thread_pool.h"

#include <pthread.h>

#include <algorithm>

#include "kernels/base/check.h"
#include "kernels/host/spin.h"

namespace hearth::kernels {
namespace {

/// Of the items that are left, what a thread claims at once: three quarters of its share. With
/// half, SmolLM2's small matrices were read in more pieces, and its decoding was 4 percent slower.
int64_t claim(int64_t left, int32_t threads) {
  return std::max<int64_t>(1, left * 3 / (int64_t{4} * threads));
}

}  // namespace

ThreadPool::ThreadPool(int32_t num_threads) : active_(num_threads) {
  HEARTH_CHECK(num_threads >= 1, "{} threads", num_threads);
  for (int32_t i = 1; i < num_threads; ++i) {
    threads_.emplace_back([this, i] { work(i); });
    pthread_setname_np(threads_.back().native_handle(), "compute");
  }
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  set_active(num_threads());
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::set_active(int32_t num_threads) {
  HEARTH_CHECK(num_threads >= 1 && num_threads <= this->num_threads(), "{} of {} threads",
               num_threads, this->num_threads());
  active_.store(num_threads);
  active_.notify_all();
}

void ThreadPool::run_loop(const Loop& loop) {
  loop_ = loop;
  next_item_.store(0, std::memory_order_relaxed);
  const bool alone = active() == 1 || loop.num_items <= 1;
  if (alone) return claim_items(0);

  uint32_t epoch = epoch_.load(std::memory_order_relaxed) + 1;
  if (epoch == 0) epoch = 1;  // 0 means a closed gate
  gate_.store(uint64_t{epoch} << 32, std::memory_order_release);
  epoch_.store(epoch);
  epoch_.notify_all();  // checks a count of sleepers first: no system call while they spin

  claim_items(0);
  // Close the gate; then wait for the threads inside to finish their last items.
  gate_.fetch_and(0xffffffffu, std::memory_order_acq_rel);
  const auto empty = [this] { return gate_.load(std::memory_order_acquire) == 0; };
  fetch_until(empty, 0, fetch_);
  // A thread that is still inside after a while has lost its core to another process. Sleeping
  // frees our core for it: the kernel moves a waiting thread to an idle core, never to a spinning
  // one.
  while (!spin_until(empty)) {
    const uint64_t inside = gate_.load(std::memory_order_acquire);
    if (inside != 0) gate_.wait(inside, std::memory_order_acquire);
  }
}

void ThreadPool::work(int32_t thread) {
  uint32_t epoch = 0;
  Fetch fetch;
  while (true) {
    epoch = wait_for_loop(epoch, thread, fetch);
    if (stopping_.load()) return;
    const int32_t active = active_.load();
    if (thread >= active) {
      active_.wait(active);
      continue;
    }
    if (!join(epoch)) continue;
    claim_items(thread);
    gate_.fetch_sub(1, std::memory_order_release);
    gate_.notify_one();  // no system call while the caller spins
  }
}

template <typename Done>
void ThreadPool::fetch_until(const Done& done, int32_t thread, Fetch& fetch) const {
  constexpr int64_t kMost = 256 << 10;  // a quarter of a core's second-level cache
  constexpr int64_t kLine = 64, kLinesAtOnce = 8;
  const std::byte* memory = ahead_.load(std::memory_order_relaxed);
  if (memory != fetch.of) {
    fetch.of = fetch.at = fetch.end = memory;
    if (memory == nullptr) return;
    auto left = static_cast<int64_t>(ahead_bytes_.load(std::memory_order_relaxed));
    for (int32_t i = 0; i < thread; ++i) {  // the threads before it take the first shares
      const int64_t share = claim(left, active());
      fetch.at += share;
      left -= share;
    }
    fetch.end = fetch.at + std::min(claim(left, active()), kMost);
  }
  while (fetch.at < fetch.end && !done()) {
    for (int64_t i = 0; i < kLinesAtOnce; ++i) __builtin_prefetch(fetch.at + i * kLine, 0, 2);
    fetch.at += kLinesAtOnce * kLine;
  }
}

uint32_t ThreadPool::wait_for_loop(uint32_t last_epoch, int32_t thread, Fetch& fetch) const {
  const auto announced = [&] { return epoch_.load(std::memory_order_acquire) != last_epoch; };
  fetch_until(announced, thread, fetch);
  if (!spin_until(announced)) epoch_.wait(last_epoch);
  return epoch_.load(std::memory_order_acquire);
}

bool ThreadPool::join(uint32_t epoch) {
  uint64_t gate = gate_.load(std::memory_order_acquire);
  while (gate >> 32 == epoch) {
    if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acquire)) return true;
  }
  return false;
}

void ThreadPool::claim_items(int32_t thread) {
  const Loop loop = loop_;
  int64_t first = next_item_.load(std::memory_order_relaxed);
  while (first < loop.num_items) {
    const int64_t count = claim(loop.num_items - first, active());
    if (!next_item_.compare_exchange_weak(first, first + count, std::memory_order_relaxed)) {
      continue;
    }
    for (int64_t item = first; item < first + count; ++item) {
      loop.body(loop.context, item, thread);
    }
    first = next_item_.load(std::memory_order_relaxed);
  }
}

}  // namespace hearth::kernels
