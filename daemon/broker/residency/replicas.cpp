#include "daemon/broker/residency/replicas.h"

#include <algorithm>
#include <string>

namespace hearth::broker {

std::vector<ModelFile> replicas_of(const ModelFile& model, const Config& config) {
  const std::vector<std::string> devices = config.devices_of(model.name);
  std::vector<ModelFile> replicas(std::max<size_t>(devices.size(), 1), model);
  replicas.front().stages = config.stages_of(model.name);
  for (size_t i = 0; i < devices.size(); ++i) {
    replicas[i].device = devices[i];
    if (devices.size() == 1) continue;
    replicas[i].replica_of = model.name;
    replicas[i].name = model.name + "@" + devices[i];
  }
  return replicas;
}

namespace {

/// The stages with budgets of their own have these next to that of all models.
void use_stages(const ModelFile& resident, const Config& config, WorkerConfig* worker,
                ipc::ServeSettings* settings) {
  worker->device = "cpu";
  settings->spare_stages = config.stages_are_auto(resident.model());
  settings->split = config.is_split(resident.model());
  settings->experts_apart = config.experts_apart(resident.model());
  if (settings->experts_apart) {
    settings->hot_expert_bytes = config.models.at(resident.model()).hot_expert_bytes.value_or(0);
  }
  bool all_cores = false;
  int64_t own_bytes = 0;
  bool shares = false;
  for (const std::string& name : resident.stages) {
    const DeviceConfig device = config.device(name);
    const int64_t threads =
        device.cores.empty() && device.threads == 0 ? worker->threads : device.threads;
    settings->stages.push_back({name, device.cores, threads, device.memory_bytes, device.kind});
    // The program of a GPU has a CPU, too.
    if (device.kind != "cpu" && worker->device == "cpu") worker->device = device.kind;
    settings->cores.insert(settings->cores.end(), device.cores.begin(), device.cores.end());
    all_cores = all_cores || (device.kind == "cpu" && device.cores.empty());
    own_bytes += device.memory_bytes;
    shares = shares || device.memory_bytes == 0;
  }
  if (all_cores) settings->cores.clear();
  const int64_t of_all = config.residency.memory_bytes;
  settings->memory_bytes = !shares ? own_bytes : of_all == 0 ? 0 : of_all + own_bytes;
}

}  // namespace

void use_device(const ModelFile& resident, const Config& config, WorkerConfig* worker,
                ipc::ServeSettings* settings) {
  settings->memory_bytes = config.residency.memory_bytes;
  if (!resident.stages.empty()) return use_stages(resident, config, worker, settings);
  if (resident.device.empty()) return;
  const DeviceConfig device = config.device(resident.device);
  worker->device = device.kind;
  settings->cores = device.cores;
  // Without a number of their own, threads are as many as the cores.
  if (device.threads > 0 || !device.cores.empty()) worker->threads = device.threads;
  if (device.memory_bytes > 0) settings->memory_bytes = device.memory_bytes;
}

}  // namespace hearth::broker
