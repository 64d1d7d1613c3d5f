#pragma once
// Shows what a request waits for, and the progress of a load, on the terminal's status line.

#include <cstdint>
#include <string>

#include "ipc/cli/terminal/terminal.h"
#include "ipc/schema/events.h"
#include "ipc/schema/replies.h"
#include "kernels/base/result.h"

namespace hearth::cli {

/// "tales: reading 1.2 GiB of 3.4 GiB, 2 s left"
std::string loading_text(const ipc::LoadingEvent& event);

/// "waiting: slots, 2 ahead, about 3.0 s"
std::string waiting_text(const ipc::QueuedEvent& event);

/// "90", "90s", "30m", "8h" or "never" as milliseconds, 0: never; kInvalidArgument lists the valid
/// forms. A number alone is seconds.
Result<int64_t> parse_keep_alive(const std::string& text);

}  // namespace hearth::cli
