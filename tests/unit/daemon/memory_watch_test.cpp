#include "daemon/broker/residency/memory_watch.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "kernels/base/clock.h"
#include "tests/temp_dir.h"

namespace hearth::broker {
namespace {

TEST_CASE("the kernel's available memory, in bytes") {
  CHECK(parse_available("MemTotal:  24000 kB\nMemAvailable:    600 kB\nBuffers: 1 kB\n") ==
        600 * 1024);
  CHECK(parse_available("MemTotal:  24000 kB\n") == 0);
  CHECK(parse_available("MemAvailable:") == 0);
}

TEST_CASE("pressure is the share of time in which some process waits for memory") {
  CHECK(parse_pressure("some avg10=12.50 avg60=1.00 avg300=0.10 total=7\n"
                       "full avg10=3.00 avg60=0.00 avg300=0.00 total=1\n") == 12.5);
  CHECK(parse_pressure("full avg10=3.00 avg60=0.00 avg300=0.00 total=1\n") == 0);
  CHECK(parse_pressure("some avg10=") == 0);
  CHECK(parse_pressure("") == 0);
}

TEST_CASE("our control group is found in both cgroup versions") {
  const std::string_view v1 = "12:cpu,cpuacct:/a\n4:hugetlb,memory:/docker/b\n0::/c\n";
  CHECK(group_path(v1, "memory") == "/docker/b");
  CHECK(group_path(v1, "cpuacct") == "/a");
  CHECK(group_path(v1, "") == "/c");
  CHECK(group_path("0::/user.slice\n", "memory").empty());
  CHECK(group_path("0::/user.slice\n", "") == "/user.slice");
  CHECK(group_path("nonsense\n:\n", "memory").empty());
  CHECK(group_path("", "").empty());
}

/// A folder with the kernel's files that a test wants.
class Machine {
 public:
  std::string root() const { return dir_.path().string(); }
  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = root() + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::trunc) << text;
  }

 private:
  tests::TempDir dir_;
};

TEST_CASE("available memory is the machine's, or the room in our control group if that is less") {
  const FakeClock clock;
  const Machine machine;
  machine.write("/proc/meminfo", "MemAvailable:    600 kB\n");
  CHECK(MemoryWatch(clock, machine.root()).available_bytes() == 600 * 1024);

  machine.write("/proc/self/cgroup", "0::/a\n");
  machine.write("/sys/fs/cgroup/a/memory.max", "max\n");
  CHECK(MemoryWatch(clock, machine.root()).available_bytes() == 600 * 1024);
  machine.write("/sys/fs/cgroup/a/memory.max", "5000\n");
  machine.write("/sys/fs/cgroup/a/memory.current", "4000\n");
  // Longer than one read.
  machine.write("/sys/fs/cgroup/a/memory.stat",
                "anon 1\n" + std::string(9000, '#') + "\ninactive_file 300\n");
  CHECK(MemoryWatch(clock, machine.root()).available_bytes() == 1300);

  machine.write("/proc/self/cgroup", "4:memory:/docker/b\n0::/a\n");
  machine.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "900\n");
  machine.write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n");
  CHECK(MemoryWatch(clock, machine.root()).available_bytes() == 1);  // 0 would be unknown
  machine.write("/sys/fs/cgroup/memory/docker/b/memory.limit_in_bytes", "7000\n");
  machine.write("/sys/fs/cgroup/memory/docker/b/memory.usage_in_bytes", "1000\n");
  CHECK(MemoryWatch(clock, machine.root()).available_bytes() == 6000);
}

TEST_CASE("a system without these files has unknown memory and no pressure") {
  const FakeClock clock;
  const Machine machine;
  MemoryWatch watch(clock, machine.root());
  CHECK(watch.available_bytes() == 0);
  CHECK_FALSE(watch.pressed());
}

TEST_CASE("memory is read again after a quarter of a second, pressure after a second") {
  FakeClock clock;
  const Machine machine;
  const auto pressure = [](const char* percent) {
    return "some avg10=" + std::string(percent) + " avg60=0.00 avg300=0.00 total=7\n";
  };
  machine.write("/proc/meminfo", "MemAvailable:    600 kB\n");
  machine.write("/proc/self/cgroup", "0::/a\n");
  machine.write("/proc/pressure/memory", pressure("1.00"));
  machine.write("/sys/fs/cgroup/a/memory.pressure", pressure("2.00"));
  MemoryWatch watch(clock, machine.root());
  CHECK(watch.available_bytes() == 600 * 1024);
  CHECK_FALSE(watch.pressed());
  machine.write("/proc/meminfo", "MemAvailable:    500 kB\n");
  machine.write("/sys/fs/cgroup/a/memory.pressure", pressure("12.00"));
  clock.advance_us(240'000);
  CHECK(watch.available_bytes() == 600 * 1024);
  CHECK_FALSE(watch.pressed());
  clock.advance_us(10'000);
  CHECK(watch.available_bytes() == 500 * 1024);
  CHECK_FALSE(watch.pressed());
  clock.advance_us(750'000);
  CHECK(watch.pressed());
}

TEST_CASE("this machine's memory is known") {
  const SteadyClock clock;
  CHECK(MemoryWatch(clock).available_bytes() > 0);
}

}  // namespace
}  // namespace hearth::broker
