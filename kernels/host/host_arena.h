#pragma once
// Host memory for many allocations that live about as long as each other, such as a model's
// weights. They follow one another in chunks of huge pages. With memory of its own, an allocation
// of less than a huge page would get none, and the end of a larger one would lie in small pages.
// One thread at a time.

#include <cstddef>
#include <memory>

namespace hearth::kernels {

class HostArena {
 public:
  /// Zeroed, aligned to 64 bytes; null if there is not enough memory. A chunk goes back to the
  /// system when nothing of it is held and the arena has begun another one, or is gone.
  std::shared_ptr<std::byte> allocate(size_t bytes);

 private:
  std::shared_ptr<std::byte> chunk_;
  size_t size_ = 0;
  size_t used_ = 0;
};

}  // namespace hearth::kernels
