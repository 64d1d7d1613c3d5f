#pragma once
// A model with several devices has a worker on each, its replicas. Each is a resident of its own.

#include <vector>

#include "daemon/broker/config/config.h"
#include "daemon/broker/residency/model_directory.h"

namespace hearth::broker {

/// One for each of the model's devices, in their order: MODEL@DEVICE. A model with one device has
/// one, with the model's name, and so has a model in stages.
std::vector<ModelFile> replicas_of(const ModelFile& model, const Config& config);

/// Sets what depends on the device of this resident: its budget, and what the device changes.
void use_device(const ModelFile& resident, const Config& config, WorkerConfig* worker,
                ipc::ServeSettings* settings);

}  // namespace hearth::broker
