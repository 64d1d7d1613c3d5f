#pragma once
// Process start of a program that logs, and changing the log level at run time.

#include "kernels/base/log.h"

namespace hearth {

/// Call after init_logging(), from any thread.
void set_log_level(LogLevel level);

/// Opens /dev/null on each closed descriptor of 0 to 2, so that no socket or lock takes the place
/// of stderr. Call before anything else is opened.
void reserve_standard_descriptors();

}  // namespace hearth
