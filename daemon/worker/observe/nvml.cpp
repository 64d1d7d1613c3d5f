#include "daemon/worker/observe/nvml.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <array>
#include <cstdint>
#include <utility>

#include "ipc/text/shown_text.h"
#include "kernels/base/numbers.h"

namespace hearth::worker {
namespace {

constexpr const char* kLibrary = "libnvidia-ml.so.1";
constexpr int kNotSupported = 3;
constexpr unsigned kSmClock = 1;
constexpr unsigned kMemoryClock = 2;
constexpr unsigned kTemperatureOfGpu = 0;
constexpr unsigned kTextBytes = 96;  // the library's largest size of a name or version

struct MemoryInfo {  // nvmlMemory_t
  unsigned long long total, free, used;
};
struct Utilization {  // nvmlUtilization_t, in percent
  unsigned gpu, memory;
};

/// Calls the library's function of that name. A missing function returns NVML's code for a value
/// that the device does not support.
template <typename... Arguments>
int call(void* library, const char* function, Arguments... arguments) {
  void* symbol = ::dlsym(library, function);
  if (symbol == nullptr) return kNotSupported;
  return reinterpret_cast<int (*)(Arguments...)>(symbol)(arguments...);
}

/// Queries one number; -1 if the device does not report it.
template <typename Device, typename... Arguments>
int32_t number(void* library, const char* function, Device device, Arguments... more) {
  unsigned value = 0;
  return call(library, function, device, more..., &value) == 0 ? static_cast<int32_t>(value) : -1;
}

/// Queries a text; empty if the device does not report it.
template <typename... Arguments>
std::string text(void* library, const char* function, Arguments... arguments) {
  std::array<char, kTextBytes> out{};
  if (call(library, function, arguments..., out.data(), kTextBytes) != 0) return {};
  out.back() = '\0';
  return out.data();
}

/// The reasons for reduced clocks, in words. An idle GPU and an administrator's own setting do not
/// count as reasons.
std::string reasons_in_words(unsigned long long reasons) {
  constexpr std::pair<unsigned long long, std::string_view> kReasons[] = {
      {0x04, "power limit"}, {0x08, "hardware slowdown"}, {0x20, "temperature"},
      {0x40, "overheating"}, {0x80, "power brake"},       {0x10, "other GPUs of its group"},
  };
  std::string out;
  for (const auto& [bit, words] : kReasons) {
    if ((reasons & bit) == 0) continue;
    if (!out.empty()) out += ", ";
    out += words;
  }
  return out;
}

}  // namespace

void Nvml::Closer::operator()(void* library) const {
  call(library, "nvmlShutdown");
  ::dlclose(library);
}

Result<Nvml> Nvml::open(const std::string& pci_bus_id) {
  const auto unavailable = [](std::string why) { return Error::unavailable(std::move(why)); };
  void* opened = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) return unavailable(fmt::format("{} is not installed", kLibrary));
  if (const int error = call(opened, "nvmlInit_v2"); error != 0) {
    ::dlclose(opened);
    return unavailable(fmt::format("{} does not start (its error {})", kLibrary, error));
  }
  Library library(opened);
  Device device = nullptr;
  const int error = call(opened, "nvmlDeviceGetHandleByPciBusId_v2", pci_bus_id.c_str(), &device);
  if (error != 0) {
    return unavailable(fmt::format("no device {} (its error {})", pci_bus_id, error));
  }
  return Nvml(std::move(library), device);
}

ipc::GpuSnapshot Nvml::read() const {
  void* library = library_.get();
  ipc::GpuSnapshot out;
  out.name = text(library, "nvmlDeviceGetName", device_);
  out.driver = text(library, "nvmlSystemGetDriverVersion");
  MemoryInfo memory{};
  if (call(library, "nvmlDeviceGetMemoryInfo", device_, &memory) == 0) {
    out.memory_used_bytes = memory.used;
    out.memory_total_bytes = memory.total;
  }
  out.sm_clock_mhz = number(library, "nvmlDeviceGetClockInfo", device_, kSmClock);
  out.sm_clock_max_mhz = number(library, "nvmlDeviceGetMaxClockInfo", device_, kSmClock);
  out.memory_clock_mhz = number(library, "nvmlDeviceGetClockInfo", device_, kMemoryClock);
  out.power_mw = number(library, "nvmlDeviceGetPowerUsage", device_);
  out.power_limit_mw = number(library, "nvmlDeviceGetEnforcedPowerLimit", device_);
  out.temperature_c = number(library, "nvmlDeviceGetTemperature", device_, kTemperatureOfGpu);
  Utilization utilization{};
  if (call(library, "nvmlDeviceGetUtilizationRates", device_, &utilization) == 0) {
    out.utilization_percent = narrow<int32_t>(utilization.gpu);
  }
  // Try the newer name first: later drivers promise only that one.
  unsigned long long reasons = 0;
  if (call(library, "nvmlDeviceGetCurrentClocksEventReasons", device_, &reasons) == 0 ||
      call(library, "nvmlDeviceGetCurrentClocksThrottleReasons", device_, &reasons) == 0) {
    out.throttled = reasons_in_words(reasons);
  }
  return out;
}

std::string gpu_condition(const std::string& pci_bus_id) {
  const Result<Nvml> nvml = Nvml::open(pci_bus_id);
  if (!nvml.ok()) return nvml.error().message;
  ipc::GpuSnapshot gpu = nvml->read();
  gpu.name.clear();  // doctor has already printed it
  const std::string line = ipc::gpu_text(gpu);
  return line.empty() ? "the library reports nothing about this device" : line;
}

}  // namespace hearth::worker
