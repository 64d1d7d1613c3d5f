// A stand-in for NVIDIA's management library: the functions that daemon/worker/observe/nvml.cpp
// opens, with one GPU. HEARTH_FAKE_NVML names the fault to simulate. It is built under the real
// library's name.

#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

constexpr int kUninitialized = 1;
constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;
constexpr int kTooSmall = 7;
constexpr int kDriverNotLoaded = 9;
constexpr unsigned kSmClock = 1;
constexpr unsigned kMemoryClock = 2;

int starts = 0;  // and not shut down again
char the_device;

bool wrong(std::string_view what) {
  const char* set = std::getenv("HEARTH_FAKE_NVML");
  return set != nullptr && what == set;
}

int report(const void* device, unsigned value, unsigned* out) {
  if (starts == 0) return kUninitialized;
  if (device != &the_device || wrong("silent")) return kNotSupported;
  *out = value;
  return 0;
}

int say_text(const void* device, const char* text, char* out, unsigned size) {
  unsigned can = 0;
  if (const int error = report(device, 0, &can); error != 0) return error;
  if (size <= std::strlen(text)) return kTooSmall;
  std::strcpy(out, text);
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
  return report(device, 412'345, milliwatts);
}
int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* milliwatts) {
  return wrong("no limits") ? kNotSupported : report(device, 700'000, milliwatts);
}
int nvmlDeviceGetClockInfo(void* device, unsigned clock, unsigned* mhz) {
  if (clock == kSmClock) return report(device, 1755, mhz);
  return clock == kMemoryClock ? report(device, 3201, mhz) : kNotSupported;
}
int nvmlDeviceGetMaxClockInfo(void* device, unsigned clock, unsigned* mhz) {
  return clock != kSmClock || wrong("no limits") ? kNotSupported : report(device, 1980, mhz);
}
int nvmlDeviceGetName(void* device, char* text, unsigned size) {
  return say_text(device, "NVIDIA H200", text, size);
}
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* total_free_used) {
  unsigned can = 0;
  if (const int error = report(device, 0, &can); error != 0) return error;
  total_free_used[0] = 150'000'000'000;
  total_free_used[1] = 61'000'000'000;
  total_free_used[2] = 89'000'000'000;
  return 0;
}
int nvmlDeviceGetUtilizationRates(void* device, unsigned* gpu_and_memory) {
  return report(device, 97, gpu_and_memory);
}
// An older driver has the function only by this name.
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* reasons) {
  unsigned can = 0;
  if (const int error = report(device, 0, &can); error != 0) return error;
  *reasons = wrong("hot") ? 0x61 : wrong("idle") ? 0x01 : 0x04;
  return 0;
}
int nvmlDeviceGetTemperature(void* device, unsigned sensor, unsigned* celsius) {
  return sensor == 0 ? report(device, 51, celsius) : kNotSupported;
}
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  return say_text(&the_device, "580.65.06", text, size);
}

}  // extern "C"
