#pragma once
// Persistent threads that run one loop at a time together with the calling thread.
//
// Threads claim items of a loop through a single counter, so a slow or late core does fewer items
// instead of delaying the loop, and a thread that does not wake in time is not waited for. A claim
// is a run of consecutive items, because their data is often contiguous: three quarters of a
// thread's share of what is left, down to one item. Between loops threads spin for some tens of
// microseconds waiting for the next one, then sleep: an idle pool uses no CPU.
//
// A thread that waits, for the next loop or for the others to end one, can meanwhile bring memory
// into its core's cache that a loop to come will read: memory is idle between loops.
//
// One thread owns the pool and makes all calls. Which thread computes an item and in which order
// varies from run to run, so items must not depend on it.

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <type_traits>
#include <vector>

#include "kernels/base/sizes.h"

namespace hearth::kernels {

class ThreadPool {
 public:
  /// `num_threads` (>= 1) includes the caller.
  explicit ThreadPool(int32_t num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int32_t num_threads() const { return size32(threads_) + 1; }
  /// Sets how many threads take part in loops, the caller included: 1 .. num_threads().
  void set_active(int32_t num_threads);
  int32_t active() const { return active_.load(std::memory_order_relaxed); }

  /// What one of the next loops will read from front to back, evenly over its items: threads that
  /// wait prefetch their first share. May be empty, or be gone by then.
  void set_ahead(std::span<const std::byte> memory) {
    ahead_bytes_.store(memory.size(), std::memory_order_relaxed);
    ahead_.store(memory.data(), std::memory_order_relaxed);
  }

  /// Calls body(item, thread) for every item in [0, num_items), then returns. `thread` is in [0,
  /// num_threads()), 0 being the caller; use it to index per-thread data such as scratch memory.
  template <typename Body>
  void run(int64_t num_items, const Body& body) {
    run_loop({num_items, &body, [](const void* context, int64_t item, int32_t thread) {
                (*static_cast<const Body*>(context))(item, thread);
              }});
  }

 private:
  struct Loop {
    int64_t num_items;
    const void* context;
    void (*body)(const void* context, int64_t item, int32_t thread);
  };

  /// A thread's place in the memory ahead.
  struct Fetch {
    const std::byte* of = nullptr;
    const std::byte* at = nullptr;
    const std::byte* end = nullptr;
  };

  void run_loop(const Loop& loop);
  void work(int32_t thread);
  uint32_t wait_for_loop(uint32_t last_epoch, int32_t thread, Fetch& fetch) const;
  /// Prefetches until `done`, or until the thread's share is fetched.
  template <typename Done>
  void fetch_until(const Done& done, int32_t thread, Fetch& fetch) const;
  bool join(uint32_t epoch);
  void claim_items(int32_t thread);

  // A loop is announced by its epoch. `gate_` holds, above the number of threads inside, the epoch
  // of the loop that may be joined, or 0 if none may. Joining is one compare-and-swap, so no thread
  // can enter a loop that its caller has closed.
  std::atomic<uint32_t> epoch_{0};
  std::atomic<uint64_t> gate_{0};
  std::atomic<int32_t> active_;  ///< threads with this number or above sleep on this variable
  std::atomic<bool> stopping_{false};
  alignas(64) std::atomic<int64_t> next_item_{0};
  alignas(64) Loop loop_{};
  std::atomic<const std::byte*> ahead_{nullptr};
  std::atomic<size_t> ahead_bytes_{0};
  Fetch fetch_;  ///< the caller's
  std::vector<std::thread> threads_;
};

}  // namespace hearth::kernels
