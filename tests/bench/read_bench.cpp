// hearth-read-bench: how fast this machine's memory is read, again and again.
//
//   hearth-read-bench [--threads N] [--mib N] [--seconds S] [--smoke]
//
// For each line on standard input it reads a buffer for that time and prints the bytes per second
// of all threads together. paired.sh sends a line between the bursts of the engines that it
// compares.

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>
#include <thread>

#include "kernels/base/numbers.h"
#include "kernels/host/ceilings.h"

namespace hearth::bench {
namespace {

struct Options {
  int32_t threads = narrow<int32_t>(std::max(1U, std::thread::hardware_concurrency()));
  int32_t mib = 512;
  double seconds = 1;
  bool smoke = false;
};

bool parse(int argc, char** argv, Options* out) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--smoke") {
      *out = {.threads = 2, .mib = 1, .seconds = 0.01, .smoke = true};
      continue;
    }
    if (i + 1 == argc) return false;
    const char* value = argv[++i];
    if (name == "--threads") {
      out->threads = std::atoi(value);
    } else if (name == "--mib") {
      out->mib = std::atoi(value);
    } else if (name == "--seconds") {
      out->seconds = std::atof(value);
    } else {
      return false;
    }
  }
  return out->threads > 0 && out->mib > 0 && out->seconds > 0;
}

double burst(kernels::MemoryReader& reader, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  double bytes = 0;
  double spent = 0;
  while (spent < seconds) {
    if (reader.read() == 0) return 0;
    bytes += as_double(reader.bytes());
    spent = std::chrono::duration<double>(Clock::now() - begin).count();
  }
  return bytes / spent;
}

int run(const Options& options) {
  kernels::ThreadPool pool(options.threads);
  kernels::MemoryReader reader(pool, (size_t{1} << 20) * options.mib);
  if (options.smoke) return burst(reader, options.seconds) > 0 ? 0 : 1;
  std::string line;
  while (std::getline(std::cin, line)) {
    fmt::print("{:.0f}\n", burst(reader, options.seconds));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace hearth::bench

int main(int argc, char** argv) {
  hearth::bench::Options options;
  if (hearth::bench::parse(argc, argv, &options)) return hearth::bench::run(options);
  fmt::print(stderr, "usage: hearth-read-bench [--threads N] [--mib N] [--seconds S] [--smoke]\n");
  return 2;
}
