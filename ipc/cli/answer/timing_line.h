#pragma once

#include <string>

#include "ipc/schema/events.h"

namespace hearth::cli {

/// "prompt 12 (cached 8) · TTFT 31 ms · 84.2 tokens/s · stop". Also names tokens restored from
/// disk, and the time that the cache saved if it is a second or more.
std::string timing_line(const ipc::DoneEvent& done);

}  // namespace hearth::cli
