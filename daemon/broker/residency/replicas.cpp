#include "daemon/broker/residency/replicas.h"

#include <algorithm>
#include <string>

namespace hearth::broker {

std::vector<ModelFile> replicas_of(const ModelFile& model, const Config& config) {
  const std::vector<std::string> devices = config.devices_of(model.name);
  std::vector<ModelFile> replicas(std::max<size_t>(devices.size(), 1), model);
  for (size_t i = 0; i < devices.size(); ++i) {
    replicas[i].device = devices[i];
    if (devices.size() == 1) continue;
    replicas[i].replica_of = model.name;
    replicas[i].name = model.name + "@" + devices[i];
  }
  return replicas;
}

void use_device(const ModelFile& resident, const Config& config, WorkerConfig* worker,
                ipc::ServeSettings* settings) {
  settings->memory_bytes = config.residency.memory_bytes;
  if (resident.device.empty()) return;
  const DeviceConfig device = config.device(resident.device);
  worker->device = device.kind;
  settings->cores = device.cores;
  // Without a number of their own, threads are as many as the cores.
  if (device.threads > 0 || !device.cores.empty()) worker->threads = device.threads;
  if (device.memory_bytes > 0) settings->memory_bytes = device.memory_bytes;
}

}  // namespace hearth::broker
