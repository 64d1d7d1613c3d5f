#include "tests/cuda/shim/block.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <bit>
#include <boost/context/detail/fcontext.hpp>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "kernels/base/check.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace hearth::shim {
namespace {

namespace context = boost::context::detail;

constexpr size_t kStackBytes = 64 * 1024;
constexpr size_t kGuardBytes = 4096;

enum class State { kReady, kAtBarrier, kAtNamedBarrier, kAtExchange, kDone };

struct Site {
  const char* file = "";
  unsigned line = 0;
  bool operator==(const Site& other) const = default;
};

Site site_of(const std::source_location& where) {
  return {where.file_name(), static_cast<unsigned>(where.line())};
}

std::string text(const Site& site) {
  return fmt::format("{}:{}", std::filesystem::path(site.file).filename().string(), site.line);
}

struct Fiber {
  State state = State::kDone;
  Site site;  // where it waits
  context::fcontext_t context = nullptr;
  std::byte* stack = nullptr;
  void* asan_fake_stack = nullptr;
};

struct Warp {
  // Two buffers in turn: a lane may write the next exchange while others still read.
  uint64_t values[2][32] = {};
  int turn = 0;
  unsigned arrived = 0;
  Site site;  // of those that arrived
};

/// bar.sync and bar.arrive with a number of threads.
struct NamedBarrier {
  unsigned arrived = 0;
  std::vector<uint32_t> waiting;
};

/// Threads that can run: a ring in which each stands at most once.
class Ready {
 public:
  void reset(size_t num_threads) {
    ring_.resize(std::bit_ceil(num_threads));
    head_ = count_ = 0;
  }
  bool empty() const { return count_ == 0; }
  void push(uint32_t index) { at(count_++) = index; }
  uint32_t pop(Order& order) {
    if (order.ascending()) {
      --count_;
      return ring_[head_++ & (ring_.size() - 1)];
    }
    const size_t picked = order.pick(count_);
    const uint32_t index = at(picked);
    at(picked) = at(--count_);
    return index;
  }

 private:
  uint32_t& at(size_t i) { return ring_[(head_ + i) & (ring_.size() - 1)]; }
  std::vector<uint32_t> ring_;
  size_t head_ = 0;
  size_t count_ = 0;
};

/// The running block. One per process: launches hold the runtime's lock.
struct Block {
  std::vector<Fiber> fibers;  // grows to the widest block so far; stacks are reused
  std::vector<Warp> warps;
  NamedBarrier named[16];
  Ready ready;
  Order* order = nullptr;
  size_t num_threads = 0;
  size_t num_done = 0;
  size_t num_at_barrier = 0;
  size_t num_waited = 0;  // for the launch before
  std::vector<std::byte> shared;
  const std::function<void()>* thread = nullptr;
  context::fcontext_t launcher = nullptr;
  context::fcontext_t* left = nullptr;  // where the context that was left last is kept
  std::string failure;
  void* asan_fake_stack = nullptr;
  const void* asan_stack_bottom = nullptr;
  size_t asan_stack_size = 0;
};

Block the_block;
uint32_t running = 0;  // index of the running fiber

std::byte* new_stack() {
  void* memory = mmap(nullptr, kStackBytes + kGuardBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  HEARTH_CHECK(memory != MAP_FAILED, "no fiber stack");
  HEARTH_CHECK(mprotect(memory, kGuardBytes, PROT_NONE) == 0, "no guard page");
  return static_cast<std::byte*>(memory) + kGuardBytes;
}

/// The end of a fiber's stack. Equal addresses within a page would share one set of the cache.
std::byte* stack_top(uint32_t index) {
  return the_block.fibers[index].stack + kStackBytes - size_t{index % 61} * 64;
}

// AddressSanitizer must know of every change of stack.
void before_fiber([[maybe_unused]] void** own_fake_stack, [[maybe_unused]] const Fiber& fiber) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(own_fake_stack, fiber.stack, kStackBytes);
#endif
}
void before_launcher([[maybe_unused]] void** own_fake_stack) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(own_fake_stack, the_block.asan_stack_bottom,
                                 the_block.asan_stack_size);
#endif
}
void inside_fiber([[maybe_unused]] const Fiber& fiber) {
#if defined(__SANITIZE_ADDRESS__)
  const void* bottom = nullptr;
  size_t size = 0;
  __sanitizer_finish_switch_fiber(fiber.asan_fake_stack, &bottom, &size);
  if (the_block.left == &the_block.launcher) {
    the_block.asan_stack_bottom = bottom;
    the_block.asan_stack_size = size;
  }
#endif
}
void inside_launcher() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(the_block.asan_fake_stack, nullptr, nullptr);
#endif
}

/// Where a fiber goes on that was left, or that begins.
void arrive(uint32_t index, const context::transfer_t& from) {
  inside_fiber(the_block.fibers[index]);
  *the_block.left = from.fctx;
  running = index;
  threadIdx.x = index;
}

/// Leaves the running fiber for the next that can run, or for the launcher. Returns when it is
/// picked again.
void leave() {
  Block& b = the_block;
  const uint32_t self = running;
  Fiber& fiber = b.fibers[self];
  void** fake_stack = fiber.state == State::kDone ? nullptr : &fiber.asan_fake_stack;
  b.left = &fiber.context;
  context::transfer_t from;
  if (b.ready.empty() || !b.failure.empty()) {
    before_launcher(fake_stack);
    from = context::jump_fcontext(b.launcher, nullptr);
  } else {
    const uint32_t next = b.ready.pop(*b.order);
    if (next == self) return;
    before_fiber(fake_stack, b.fibers[next]);
    running = next;  // for its first step
    from = context::jump_fcontext(b.fibers[next].context, nullptr);
  }
  arrive(self, from);
}

void make_ready(uint32_t index) {
  the_block.fibers[index].state = State::kReady;
  the_block.ready.push(index);
}

void release_barrier_if_complete() {
  Block& b = the_block;
  if (b.num_at_barrier == 0 || b.num_at_barrier + b.num_done < b.num_threads) return;
  const Site* site = nullptr;
  for (uint32_t i = 0; i < b.num_threads; ++i) {
    const Fiber& fiber = b.fibers[i];
    if (fiber.state != State::kAtBarrier) continue;
    if (site == nullptr) site = &fiber.site;
    if (!(*site == fiber.site)) {
      b.failure = fmt::format("threads meet at different __syncthreads: {} and {}", text(*site),
                              text(fiber.site));
      return;
    }
  }
  b.num_at_barrier = 0;
  for (uint32_t i = 0; i < b.num_threads; ++i) {
    if (b.fibers[i].state == State::kAtBarrier) make_ready(i);
  }
}

void fiber_main(context::transfer_t from) {
  Block& b = the_block;
  arrive(running, from);
  (*b.thread)();
  b.fibers[running].state = State::kDone;
  ++b.num_done;
  release_barrier_if_complete();
  leave();
  std::abort();  // a finished fiber is never resumed
}

/// Leaves the running fiber until what it waits for has come.
void wait(State state, const Site& site) {
  Fiber& fiber = the_block.fibers[running];
  fiber.state = state;
  fiber.site = site;
  if (state == State::kAtBarrier) release_barrier_if_complete();
  leave();
}

/// Once `failure` is set the fiber waits and is never resumed, so nothing on its stack may own
/// memory.
void abandon() { wait(State::kAtExchange, {}); }

/// Nothing can run: reports which fiber waits for what.
std::string stuck() {
  Block& b = the_block;
  for (uint32_t i = 0; i < b.num_threads; ++i) {
    const Fiber& fiber = b.fibers[i];
    if (fiber.state == State::kAtBarrier) {
      return fmt::format("__syncthreads at {} reached by {} of {} threads", text(fiber.site),
                         b.num_at_barrier, b.num_threads - b.num_done);
    }
  }
  for (uint32_t i = 0; i < b.num_threads; ++i) {
    const Fiber& fiber = b.fibers[i];
    if (fiber.state == State::kAtExchange) {
      return fmt::format("warp operation at {} reached by lanes {:#010x} of warp {}",
                         text(fiber.site), b.warps[i / 32].arrived, i / 32);
    }
  }
  for (uint32_t i = 0; i < b.num_threads; ++i) {
    const Fiber& fiber = b.fibers[i];
    if (fiber.state == State::kAtNamedBarrier) {
      return fmt::format("barrier at {} is reached by too few threads", text(fiber.site));
    }
  }
  return "no thread can run";
}

void prepare(const cudaLaunchConfig_t& config, uint3 block_idx,
             const std::function<void()>& thread) {
  blockIdx = block_idx;
  blockDim = config.blockDim;
  gridDim = config.gridDim;
  Block& b = the_block;
  b.num_threads = config.blockDim.x;
  b.num_done = b.num_at_barrier = b.num_waited = 0;
  b.thread = &thread;
  b.failure.clear();
  b.warps.assign(b.num_threads / 32, Warp{});
  for (NamedBarrier& named : b.named) named = {};
  b.ready.reset(b.num_threads);
  // A new vector each time: AddressSanitizer guards its exact size. All bits set is NaN.
  b.shared = std::vector<std::byte>(config.dynamicSmemBytes, std::byte{0xff});
  while (b.fibers.size() < b.num_threads) {
    b.fibers.emplace_back();
    b.fibers.back().stack = new_stack();
  }
  for (uint32_t i = 0; i < b.num_threads; ++i) {
    Fiber& fiber = b.fibers[i];
#if defined(__SANITIZE_ADDRESS__)
    // A fiber that was abandoned has left its frames poisoned.
    if (fiber.state != State::kDone) __asan_unpoison_memory_region(fiber.stack, kStackBytes);
#endif
    fiber.context = context::make_fcontext(stack_top(i), kStackBytes - 4096, fiber_main);
    fiber.asan_fake_stack = nullptr;
    make_ready(i);
  }
}

}  // namespace

void* dynamic_shared_memory() { return the_block.shared.data(); }

void sync_threads(const std::source_location& where) {
  ++the_block.num_at_barrier;
  wait(State::kAtBarrier, site_of(where));
}

void named_barrier(int index, unsigned threads, bool waits, const std::source_location& where) {
  Block& b = the_block;
  NamedBarrier& named = b.named[index];
  if (++named.arrived < threads) {
    if (!waits) return;
    named.waiting.push_back(running);
    return wait(State::kAtNamedBarrier, site_of(where));
  }
  const std::vector<uint32_t> released = std::move(named.waiting);
  named = {};
  for (const uint32_t index_of_thread : released) make_ready(index_of_thread);
}

void wait_for_previous() { ++the_block.num_waited; }

const uint64_t* exchange(unsigned mask, uint64_t value, const std::source_location& where) {
  Block& b = the_block;
  const Site site = site_of(where);
  const uint32_t index = running;
  Warp& warp = b.warps[index / 32];
  if (mask != 0xffffffffu) {
    b.failure =
        fmt::format("warp operation at {} with mask {:#010x}, want all lanes", text(site), mask);
    abandon();
  }
  if (warp.arrived == 0) {
    warp.site = site;
  } else if (!(warp.site == site)) {
    b.failure = fmt::format("lanes of a warp meet at {} and {}", text(warp.site), text(site));
    abandon();
  }
  const uint64_t* result = warp.values[warp.turn];
  warp.values[warp.turn][index % 32] = value;
  warp.arrived |= 1u << (index % 32);
  if (warp.arrived != 0xffffffffu) {
    wait(State::kAtExchange, site);
    return result;
  }
  warp.arrived = 0;
  warp.turn ^= 1;
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t other = index / 32 * 32 + lane;
    if (other != index) make_ready(other);
  }
  return result;
}

std::string run_block(const cudaLaunchConfig_t& config, uint3 block_idx,
                      const std::function<void()>& thread, Order& order) {
  Block& b = the_block;
  prepare(config, block_idx, thread);
  b.order = &order;
  running = b.ready.pop(order);
  b.left = &b.launcher;
  before_fiber(&b.asan_fake_stack, b.fibers[running]);
  const context::transfer_t from = context::jump_fcontext(b.fibers[running].context, nullptr);
  inside_launcher();
  *b.left = from.fctx;
  if (b.failure.empty() && b.num_done < b.num_threads) b.failure = stuck();
  if (b.failure.empty() && config.attrs != nullptr && b.num_waited != b.num_threads) {
    b.failure = fmt::format("{} of {} threads waited once for the launch before", b.num_waited,
                            b.num_threads);
  }
  return b.failure;
}

}  // namespace hearth::shim
