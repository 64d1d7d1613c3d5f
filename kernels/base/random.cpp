#include "kernels/base/random.h"

#include <sys/random.h>
#include <unistd.h>

#include <utility>

#include "kernels/base/clock.h"

namespace hearth {

bool fill_random(std::span<std::byte> out) {
  return std::cmp_equal(::getrandom(out.data(), out.size(), 0), out.size());
}

uint64_t random_bits() {
  uint64_t bits = 0;
  if (fill_random(std::as_writable_bytes(std::span(&bits, 1)))) return bits;
  const uint64_t now = SteadyClock().now_us();
  return splitmix(now + kSplitMixStep * ::getpid());
}

}  // namespace hearth
