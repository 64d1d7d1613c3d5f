#pragma once

#include <string>

#include "ipc/schema/events.h"

namespace hearth::cli {

/// "prompt 12 (cached 8) · TTFT 31 ms · 84.2 tokens/s · stop"; a second and more that the cache has
/// saved is told, and what came from disk.
std::string timing_line(const ipc::DoneEvent& done);

}  // namespace hearth::cli
