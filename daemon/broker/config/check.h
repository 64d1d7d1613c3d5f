#pragma once
// Checks the values of a configuration before anything is opened. `hearthd --check` and a start run
// the same checks.

#include "daemon/broker/config/config.h"
#include "kernels/base/result.h"

namespace hearth::broker {

/// kInvalidArgument, kForbidden or kIo with the setting's name: an address that may not be listened
/// on, an invalid web origin, unreadable keys.
Result<void> check_config(const Config& config);

}  // namespace hearth::broker
