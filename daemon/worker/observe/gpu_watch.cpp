#include "daemon/worker/observe/gpu_watch.h"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

namespace hearth::worker {
namespace {

/// Far longer than a read takes, too short to notice when a worker ends.
constexpr auto kLeaveAfter = std::chrono::milliseconds(200);

}  // namespace

struct GpuWatch::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  bool stop = false;
  bool ended = false;
  std::optional<ipc::GpuSnapshot> latest;
  int64_t read_us = 0;
};

GpuWatch::GpuWatch(ReadGpu read, const Clock& clock, int64_t every_us)
    : clock_(clock), shared_(std::make_shared<Shared>()) {
  std::thread([shared = shared_, read = std::move(read), &clock, every_us] {
    ::pthread_setname_np(::pthread_self(), "gpu");
    std::unique_lock lock(shared->mutex);
    while (!shared->stop) {
      lock.unlock();
      std::optional<ipc::GpuSnapshot> now = read();
      lock.lock();
      if (shared->stop) break;  // the clock may no longer exist
      shared->latest = std::move(now);
      shared->read_us = clock.now_us();
      shared->changed.wait_for(lock, std::chrono::microseconds(every_us),
                               [&] { return shared->stop; });
    }
    shared->ended = true;
    shared->changed.notify_all();
  }).detach();
}

GpuWatch::~GpuWatch() {
  std::unique_lock lock(shared_->mutex);
  shared_->stop = true;
  shared_->changed.notify_all();
  shared_->changed.wait_for(lock, kLeaveAfter, [this] { return shared_->ended; });
}

std::optional<ipc::GpuSnapshot> GpuWatch::latest() const {
  const std::scoped_lock lock(shared_->mutex);
  if (!shared_->latest || clock_.now_us() - shared_->read_us > kOldUs) return std::nullopt;
  return shared_->latest;
}

}  // namespace hearth::worker
