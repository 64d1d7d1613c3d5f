#pragma once
// A thread that makes all calls of one op table, in the order in which they are posted. The op
// table is made on it, too: threads that the table starts then inherit its cores.

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace hearth::kernels {

/// Waits until `counter` is at least `value`: spins for some tens of microseconds, then sleeps
/// until the thread that raises the counter notifies.
void wait_for_count(const std::atomic<uint64_t>& counter, uint64_t value);

class OpThread {
 public:
  OpThread();
  /// Makes the calls that were posted, then ends.
  ~OpThread();
  OpThread(const OpThread&) = delete;
  OpThread& operator=(const OpThread&) = delete;

  /// From any thread.
  void post(std::function<void()> call) { add(std::move(call)); }
  /// Posts it and waits for it and all calls before it.
  void run(std::function<void()> call) { wait_for_count(made_, add(std::move(call))); }

 private:
  /// Returns the call's number, from 1.
  uint64_t add(std::function<void()> call);
  void work();

  std::mutex mutex_;
  std::deque<std::function<void()>> calls_;    ///< guarded by mutex_
  std::atomic<uint64_t> posted_{0}, made_{0};  ///< numbers of calls
  std::thread thread_;
};

}  // namespace hearth::kernels
