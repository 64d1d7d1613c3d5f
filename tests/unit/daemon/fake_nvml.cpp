// A stand-in for NVIDIA's management library: the functions that daemon/worker/nvml.cpp opens, with
// one GPU. HEARTH_FAKE_NVML says what goes wrong. It is built under the real one's name.

#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

constexpr int kUninitialized = 1;
constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;
constexpr int kDriverNotLoaded = 9;

int starts = 0;  // and not shut down again
char the_device;

bool wrong(std::string_view what) {
  const char* set = std::getenv("HEARTH_FAKE_NVML");
  return set != nullptr && what == set;
}

int say(const void* device, unsigned value, unsigned* out) {
  if (starts == 0) return kUninitialized;
  if (device != &the_device || wrong("silent")) return kNotSupported;
  *out = value;
  return 0;
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  if (wrong("start")) return kDriverNotLoaded;
  ++starts;
  return 0;
}

int nvmlShutdown() {
  --starts;
  return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  if (starts == 0) return kUninitialized;
  if (std::strcmp(bus_id, "0000:65:00.0") != 0) return kNotFound;
  *device = &the_device;
  return 0;
}

int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  return say(device, 412'345, milliwatts);
}
int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* milliwatts) {
  return wrong("no limits") ? kNotSupported : say(device, 700'000, milliwatts);
}
int nvmlDeviceGetClockInfo(void* device, unsigned clock, unsigned* mhz) {
  return clock == 0 ? say(device, 1755, mhz) : kNotSupported;
}
int nvmlDeviceGetMaxClockInfo(void* device, unsigned clock, unsigned* mhz) {
  return clock != 0 || wrong("no limits") ? kNotSupported : say(device, 1980, mhz);
}
int nvmlDeviceGetTemperature(void* device, unsigned sensor, unsigned* celsius) {
  return sensor == 0 ? say(device, 51, celsius) : kNotSupported;
}
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  if (starts == 0 || wrong("silent") || size < 10) return kNotSupported;
  std::strcpy(text, "580.65.06");
  return 0;
}

}  // extern "C"
