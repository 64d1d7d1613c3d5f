#include "kernels/host/host_arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/host/host_memory.h"

namespace hearth::kernels {
namespace {

constexpr size_t kAlign = 64;
// Sanitized, every allocation has a chunk of its own, so that overruns are detected.
#ifdef __SANITIZE_ADDRESS__
constexpr size_t kChunk = 1;
#else
/// Addresses alone, until they are written.
constexpr size_t kChunk = size_t{256} << 20;
#endif

std::shared_ptr<std::byte> chunk_of(size_t bytes) {
  auto* memory = static_cast<std::byte*>(allocate_host(bytes));
  if (memory == nullptr) return nullptr;
  return {memory, [bytes](std::byte* each) { release_host(each, bytes); }};
}

void give_back_pages(std::byte* memory, size_t bytes) {
  const size_t page = sysconf(_SC_PAGESIZE);
  const size_t skip = (page - reinterpret_cast<uintptr_t>(memory) % page) % page;
  if (bytes < skip + page) return;
  madvise(memory + skip, (bytes - skip) / page * page, MADV_DONTNEED);
}

}  // namespace

std::shared_ptr<std::byte> HostArena::allocate(size_t bytes) {
  if (bytes > SIZE_MAX / 2) return nullptr;
  used_ = (used_ + kAlign - 1) / kAlign * kAlign;
  if (chunk_ == nullptr || used_ > size_ || bytes > size_ - used_) {
    // Where addresses are limited a chunk of this size alone may still fit.
    size_t size = std::max({bytes, kChunk, size_t{1}});
    std::shared_ptr<std::byte> chunk = chunk_of(size);
    if (chunk == nullptr) chunk = chunk_of(size = std::max(bytes, size_t{1}));
    if (chunk == nullptr) return nullptr;
    chunk_ = std::move(chunk);
    size_ = size;
    used_ = 0;
  }
  std::byte* const memory = chunk_.get() + used_;
  used_ += bytes;
  return {memory, [chunk = chunk_, bytes](std::byte* each) { give_back_pages(each, bytes); }};
}

}  // namespace hearth::kernels
