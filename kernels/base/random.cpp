#include "kernels/base/random.h"

#include <sys/random.h>
#include <unistd.h>

#include "kernels/base/clock.h"

namespace hearth {

bool fill_random(std::span<std::byte> out) {
  return ::getrandom(out.data(), out.size(), 0) == static_cast<ssize_t>(out.size());
}

uint64_t random_bits() {
  uint64_t bits = 0;
  if (fill_random(std::as_writable_bytes(std::span(&bits, 1)))) return bits;
  const auto now = static_cast<uint64_t>(SteadyClock().now_us());
  return splitmix(now + kSplitMixStep * static_cast<uint64_t>(::getpid()));
}

}  // namespace hearth
