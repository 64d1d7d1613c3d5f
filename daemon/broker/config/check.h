#pragma once
// What a configuration cannot mean, found before anything is opened: `hearthd --check` and a start
// refuse the same.

#include "daemon/broker/config/config.h"
#include "kernels/base/result.h"

namespace hearth::broker {

/// kInvalidArgument, kForbidden or kIo with the setting's name: an address that is not listened on,
/// a web origin that is none, keys that cannot be read.
Result<void> check_config(const Config& config);

}  // namespace hearth::broker
