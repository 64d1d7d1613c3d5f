#pragma once
// `hearth-worker-<device> doctor`: what the device offers, what hearth would use, and why.

#include "daemon/worker/load/device.h"

namespace hearth::worker {

/// Prints the report to stdout, as lines or as the JSON object that `hearth doctor` reads,
/// {"checks":[{"level","name","detail"}]}. Returns the exit status: 0, or 1 if the device cannot be
/// used.
int run_doctor(const DeviceOptions& options, bool as_json);

}  // namespace hearth::worker
