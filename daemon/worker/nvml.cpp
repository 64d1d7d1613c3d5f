#include "daemon/worker/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <memory>

namespace hearth::worker {
namespace {

constexpr const char* kLibrary = "libnvidia-ml.so.1";
constexpr unsigned kGraphicsClock = 0;
constexpr unsigned kTemperatureOfGpu = 0;
using Device = struct NvmlDevice*;  // opaque

struct Closer {
  void operator()(void* library) const { ::dlclose(library); }
};
using Library = std::unique_ptr<void, Closer>;

/// The library's function of that name; a missing one answers as NVML does for what a device
/// cannot say.
template <typename... Arguments>
int call(const Library& library, const char* function, Arguments... arguments) {
  constexpr int kNotSupported = 3;
  void* symbol = ::dlsym(library.get(), function);
  if (symbol == nullptr) return kNotSupported;
  return reinterpret_cast<int (*)(Arguments...)>(symbol)(arguments...);
}

/// A query for one number; -1 where the device does not say.
template <typename... Arguments>
int64_t number(const Library& library, const char* function, Device device, Arguments... more) {
  unsigned value = 0;
  return call(library, function, device, more..., &value) == 0 ? int64_t{value} : -1;
}

void add(std::string* line, const std::string& part) {
  if (!line->empty()) *line += ", ";
  *line += part;
}

std::string describe(const Library& library, Device device) {
  std::string line;
  const int64_t watts = number(library, "nvmlDeviceGetPowerUsage", device) / 1000;
  const int64_t limit = number(library, "nvmlDeviceGetEnforcedPowerLimit", device) / 1000;
  if (watts > 0) add(&line, fmt::format("{} W", watts));
  if (watts > 0 && limit > 0) line += fmt::format(" of {}", limit);
  const int64_t clock = number(library, "nvmlDeviceGetClockInfo", device, kGraphicsClock);
  const int64_t most = number(library, "nvmlDeviceGetMaxClockInfo", device, kGraphicsClock);
  if (clock > 0) add(&line, fmt::format("{} MHz", clock));
  if (clock > 0 && most > 0) line += fmt::format(" of {}", most);
  const int64_t celsius = number(library, "nvmlDeviceGetTemperature", device, kTemperatureOfGpu);
  if (celsius > 0) add(&line, fmt::format("{} C", celsius));
  char driver[96] = {};
  if (call(library, "nvmlSystemGetDriverVersion", static_cast<char*>(driver),
           unsigned{sizeof driver}) == 0) {
    add(&line, fmt::format("driver {}", driver));
  }
  return line.empty() ? "the library says nothing of this device" : line;
}

}  // namespace

std::string gpu_condition(const std::string& pci_bus_id) {
  const Library library(::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL));
  if (library == nullptr) return fmt::format("{} is not installed", kLibrary);
  if (const int error = call(library, "nvmlInit_v2"); error != 0) {
    return fmt::format("{} does not start (its error {})", kLibrary, error);
  }
  Device device = nullptr;
  const int error = call(library, "nvmlDeviceGetHandleByPciBusId_v2", pci_bus_id.c_str(), &device);
  std::string line = error == 0 ? describe(library, device)
                                : fmt::format("no device {} (its error {})", pci_bus_id, error);
  call(library, "nvmlShutdown");
  return line;
}

}  // namespace hearth::worker
