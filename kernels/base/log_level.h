#pragma once
// How a process that logs begins, and changing how much is logged while it runs.

#include "kernels/base/log.h"

namespace hearth {

/// After init_logging(); any thread.
void set_log_level(LogLevel level);

/// Opens /dev/null for each of descriptors 0 to 2 that is closed, so that no socket or lock becomes
/// what others take for stderr. Before anything is opened.
void reserve_standard_descriptors();

}  // namespace hearth
