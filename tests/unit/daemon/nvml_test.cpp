// What is said of a GPU's condition, by a management library that is a stand-in.

#include "daemon/worker/nvml.h"

#include <doctest/doctest.h>

#include <cstdlib>

using hearth::worker::gpu_condition;

namespace {

constexpr const char* kBusId = "0000:65:00.0";

std::string with(const char* wrong) {
  ::setenv("HEARTH_FAKE_NVML", wrong, 1);
  const std::string said = gpu_condition(kBusId);
  ::unsetenv("HEARTH_FAKE_NVML");
  return said;
}

}  // namespace

TEST_CASE("nvml: power, clock, temperature and driver in one line") {
  CHECK(gpu_condition(kBusId) == "412 W of 700, 1755 MHz of 1980, 51 C, driver 580.65.06");
  CHECK(gpu_condition(kBusId) == "412 W of 700, 1755 MHz of 1980, 51 C, driver 580.65.06");
  CHECK(with("no limits") == "412 W, 1755 MHz, 51 C, driver 580.65.06");
}

TEST_CASE("nvml: a library that does not start, another device, one that says nothing") {
  CHECK(with("start") == "libnvidia-ml.so.1 does not start (its error 9)");
  CHECK(gpu_condition("0000:66:00.0") == "no device 0000:66:00.0 (its error 6)");
  CHECK(with("silent") == "the library says nothing of this device");
}
