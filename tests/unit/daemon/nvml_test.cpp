// The state of a GPU, as reported by a stand-in for the management library.

#include "daemon/worker/observe/nvml.h"

#include <doctest/doctest.h>

#include <cstdlib>

using hearth::Result;
using hearth::ipc::GpuSnapshot;
using hearth::worker::gpu_condition;
using hearth::worker::Nvml;

namespace {

constexpr const char* kBusId = "0000:65:00.0";

/// Simulates this fault while it lives.
struct Wrong {
  explicit Wrong(const char* what) { ::setenv("HEARTH_FAKE_NVML", what, 1); }
  ~Wrong() { ::unsetenv("HEARTH_FAKE_NVML"); }
};

std::string with(const char* what) {
  const Wrong wrong(what);
  return gpu_condition(kBusId);
}

}  // namespace

TEST_CASE("nvml: memory, power, clocks, temperature and driver in one line") {
  const std::string all =
      "82.9 GiB of 139.7 GiB used, 97 % busy, 412 W of 700, 1755 MHz of 1980, memory 3201 MHz, "
      "51 C, driver 580.65.06, slowed by power limit";
  CHECK(gpu_condition(kBusId) == all);
  CHECK(gpu_condition(kBusId) == all);
  CHECK(with("no limits") ==
        "82.9 GiB of 139.7 GiB used, 97 % busy, 412 W, 1755 MHz, memory 3201 MHz, 51 C, driver "
        "580.65.06, slowed by power limit");
}

TEST_CASE("nvml: a library that does not start, another device, a device that reports nothing") {
  CHECK(with("start") == "libnvidia-ml.so.1 does not start (its error 9)");
  CHECK(gpu_condition("0000:66:00.0") == "no device 0000:66:00.0 (its error 6)");
  CHECK(with("silent") == "the library reports nothing about this device");
}

TEST_CASE("nvml: repeated readings; missing values are not invented") {
  const Result<Nvml> nvml = Nvml::open(kBusId);
  REQUIRE(nvml.ok());
  const GpuSnapshot gpu = nvml->read();
  CHECK(gpu.name == "NVIDIA H200");
  CHECK(gpu.driver == "580.65.06");
  CHECK(gpu.memory_used_bytes == 89'000'000'000);
  CHECK(gpu.memory_total_bytes == 150'000'000'000);
  CHECK(gpu.sm_clock_mhz == 1755);
  CHECK(gpu.sm_clock_max_mhz == 1980);
  CHECK(gpu.memory_clock_mhz == 3201);
  CHECK(gpu.power_mw == 412'345);
  CHECK(gpu.power_limit_mw == 700'000);
  CHECK(gpu.temperature_c == 51);
  CHECK(gpu.utilization_percent == 97);
  CHECK(gpu.throttled == "power limit");
  {
    const Wrong hot("hot");
    CHECK(nvml->read().throttled == "temperature, overheating");
  }
  {
    const Wrong idle("idle");  // no reason to worry
    CHECK(nvml->read().throttled.empty());
  }
  {
    const Wrong silent("silent");  // as if the device had fallen off its bus
    CHECK(nvml->read() == GpuSnapshot{});
  }
  CHECK(nvml->read() == gpu);
}
