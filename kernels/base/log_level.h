#pragma once
// Changing how much is logged while a process runs.

#include "kernels/base/log.h"

namespace hearth {

/// After init_logging(); any thread.
void set_log_level(LogLevel level);

}  // namespace hearth
