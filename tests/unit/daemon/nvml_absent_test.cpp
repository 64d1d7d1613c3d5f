// A machine without NVIDIA's management library.

#include <dlfcn.h>
#include <doctest/doctest.h>

#include "daemon/worker/observe/nvml.h"
#include "tests/skip.h"

TEST_CASE("nvml: a missing library is reported as such") {
  if (void* real = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    ::dlclose(real);
    HEARTH_SKIP("this machine has libnvidia-ml.so.1");
  }
  CHECK(hearth::worker::gpu_condition("0000:65:00.0") == "libnvidia-ml.so.1 is not installed");
}
