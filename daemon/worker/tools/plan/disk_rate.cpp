#include "daemon/worker/tools/plan/disk_rate.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>

#include "kernels/base/numbers.h"
#include "models/gguf/file_mapping.h"

namespace hearth::worker {
namespace {

constexpr size_t kPieceBytes = 4 << 20;
/// Reads at once, so that the disk does not wait between two of them.
constexpr size_t kReaders = 4;
constexpr auto kTime = std::chrono::seconds(1);
/// Reads past the page cache want aligned memory.
constexpr size_t kAlignment = 4096;

}  // namespace

Result<double> measure_disk(const std::filesystem::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
  if (fd < 0 && errno == EINVAL) return 0.0;
  if (fd < 0) return models::system_error(file, "open", errno);
  const auto begin = std::chrono::steady_clock::now();
  std::atomic<off_t> next = 0;
  std::atomic<int64_t> bytes_read = 0;
  const auto read = [&] {
    const std::unique_ptr<void, decltype(&std::free)> piece(
        std::aligned_alloc(kAlignment, kPieceBytes), std::free);
    while (piece != nullptr && std::chrono::steady_clock::now() - begin < kTime) {
      const ssize_t bytes = ::pread(fd, piece.get(), kPieceBytes, next.fetch_add(kPieceBytes));
      if (bytes <= 0) return;
      bytes_read += bytes;
    }
  };
  {
    std::array<std::jthread, kReaders> readers;
    for (std::jthread& reader : readers) reader = std::jthread(read);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  ::close(fd);
  return as_double(bytes_read.load()) / seconds.count();
}

}  // namespace hearth::worker
