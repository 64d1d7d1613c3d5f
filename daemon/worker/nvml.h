#pragma once
// What NVIDIA's management library says of a GPU, where its library is installed: opened at run
// time, never linked. Source: NVML API reference, device queries.

#include <string>

namespace hearth::worker {

/// One line, such as "412 W of 700, 1980 MHz of 1980, 51 C, driver 580.65.06"; or why there is
/// none. `pci_bus_id` as CUDA gives it, "0000:65:00.0".
std::string gpu_condition(const std::string& pci_bus_id);

}  // namespace hearth::worker
